#include "tailcast/storage/posix_format.h"

#include <gtest/gtest.h>

#include <string>

#include "tailcast/base/rng.h"
#include "tailcast/base/strong.h"
#include "tailcast/storage/store_names.h"

namespace tailcast::storage::posix {
namespace {

Header ExampleHeader() {
  Header header;
  header.file_id = 0x1122334455667788;
  header.epoch = Epoch{7};
  header.start = 123'456;
  header.unflushed = true;
  header.name = "0000000001-x.data";
  header.key = "0000000001.data";
  return header;
}

TEST(PosixFormat, APageComesBackAsItWas) {
  const std::string page =
      EncodePage(ExampleHeader(), {Epoch{7}, 123'456}, {.attach = 99, .boot = 98});
  ASSERT_EQ(page.size(), 4096u);
  Result<Header> header = DecodeHeader(page);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(*header, ExampleHeader());
  Header longest = ExampleHeader();
  longest.name = std::string(kNameSizeMax, 'n');
  longest.key = std::string(kNameSizeMax, 'k');
  EXPECT_EQ(*DecodeHeader(EncodePage(longest, {}, {})), longest);
}

// The bytes that docs/formats/primary_posix.md draws.
TEST(PosixFormat, TheLayoutIsTheDrawnOne) {
  const std::string page = EncodePage(ExampleHeader(), {Epoch{7}, 123'456},
                                      {.attach = 0x0102030405060708, .boot = 0x1112131415161718});
  const auto u64 = [&](size_t at) {
    uint64_t v = 0;
    for (size_t i = 0; i < 8; ++i) {
      v |= uint64_t{static_cast<uint8_t>(page[at + i])} << (8 * i);
    }
    return v;
  };
  EXPECT_EQ(page.substr(0, 8), "TAC-page");
  EXPECT_EQ(page.substr(8, 8), std::string("\1\0\0\0\1\0\0\0", 8));
  EXPECT_EQ(u64(16), 0x1122334455667788u);
  EXPECT_EQ(u64(24), 7u);
  EXPECT_EQ(u64(32), 123'456u);
  EXPECT_EQ(page.substr(40, 4), std::string("\x11\0\x0f\0", 4));
  EXPECT_EQ(page.substr(48, 17), "0000000001-x.data");
  EXPECT_EQ(page.substr(65, 15), "0000000001.data");
  EXPECT_EQ(u64(512), uint64_t{7} << 40 | 123'456u);
  EXPECT_EQ(u64(520), 0x0102030405060708u);
  EXPECT_EQ(page.substr(528, 8), "TAC-live");
  EXPECT_EQ(u64(536), 0x1112131415161718u);
  EXPECT_EQ(page.substr(1024), std::string(4096 - 1024, '\0'));
  EXPECT_EQ(EncodeTombstone(1).substr(0, 8), "TAC-gone");
  EXPECT_EQ(EncodeSlot({1, Epoch{2}, 30, 20, 5}).substr(0, 8), "TAC-slot");
}

TEST(PosixFormat, EveryChangedBitOfTheHeaderIsNoticed) {
  const std::string page = EncodePage(ExampleHeader(), {Epoch{7}, 0}, {.attach = 1, .boot = 1});
  for (size_t bit = 0; bit < 512 * 8; ++bit) {
    std::string bad = page;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(DecodeHeader(bad).ok()) << "bit " << bit;
  }
  // The rest of the page is not the header's.
  std::string live = page;
  for (size_t i = 512; i < 4096; ++i) live[i] = 'x';
  EXPECT_TRUE(DecodeHeader(live).ok());
}

TEST(PosixFormat, ShortForeignAndNewerPagesAreNamed) {
  EXPECT_EQ(DecodeHeader("").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(DecodeHeader(std::string(4095, 'x')).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(DecodeHeader(std::string(4096, '\0')).status().code(), StatusCode::kDataLoss);
  std::string newer = EncodePage(ExampleHeader(), {}, {});
  newer[8] = 9;
  EXPECT_NE(DecodeHeader(newer).status().message().find("version 9"), std::string::npos);
}

TEST(PosixFormat, SlotsAreBelievedOnlyWholeAndForTheirFileAndEpoch) {
  Header header = ExampleHeader();
  const Slot slot{header.file_id, header.epoch, 200'000, 150'000, 42};
  const std::string sector = EncodeSlot(slot);
  ASSERT_EQ(sector.size(), 512u);
  EXPECT_EQ(DecodeSlot(sector, header), slot);
  for (size_t i = 0; i < 512; ++i) {
    std::string torn = sector;
    torn[i] = static_cast<char>(torn[i] + 1);
    EXPECT_FALSE(DecodeSlot(torn, header).has_value()) << i;
  }
  EXPECT_FALSE(DecodeSlot(std::string(512, '\0'), header).has_value());
  EXPECT_FALSE(DecodeSlot(sector.substr(0, 511), header).has_value());
  Header other = header;
  other.file_id++;
  EXPECT_FALSE(DecodeSlot(sector, other).has_value());
  other = header;
  other.epoch = Successor(other.epoch);
  EXPECT_FALSE(DecodeSlot(sector, other).has_value());
  other = header;
  other.start = 150'001;  // the range lies before the segment
  EXPECT_FALSE(DecodeSlot(sector, other).has_value());
  EXPECT_FALSE(DecodeSlot(EncodeSlot({header.file_id, header.epoch, 150'000, 150'000, 0}), header)
                   .has_value());
  EXPECT_FALSE(DecodeSlot(EncodeSlot({header.file_id, header.epoch, 150'000, 160'000, 0}), header)
                   .has_value());
}

TEST(PosixFormat, TheNewestSlotComesFirst) {
  Header header = ExampleHeader();
  header.start = 0;
  std::string page = EncodePage(header, {}, {});
  const Slot a{header.file_id, header.epoch, 100, 0, 1};
  const Slot b{header.file_id, header.epoch, 200, 100, 2};
  for (const bool swapped : {false, true}) {
    page.replace(1024, 512, EncodeSlot(swapped ? b : a));
    page.replace(1536, 512, EncodeSlot(swapped ? a : b));
    EXPECT_EQ(SlotsOf(page, header), (std::vector<Slot>{b, a}));
  }
  page[1030] = static_cast<char>(page[1030] + 1);
  EXPECT_EQ(SlotsOf(page, header), (std::vector<Slot>{a}));
}

TEST(PosixFormat, TheWordHoldsItsExtremes) {
  for (const CommitWord w : {CommitWord{Epoch::kNone, 0}, CommitWord{Epoch::kFirst, 0},
                             CommitWord{kEpochMax, kLengthMax}, CommitWord{kEpochMax, 0},
                             CommitWord{Epoch::kNone, kLengthMax}}) {
    EXPECT_EQ(Unpack(Pack(w)), w);
  }
}

TEST(PosixFormat, SegmentNamesAreParsedStrictly) {
  constexpr uint64_t kId = 0xab;
  EXPECT_EQ(SegmentName("f", kId, Epoch{1}), "f");
  EXPECT_EQ(SegmentName("f", kId, Epoch{12}), ".f.00000000000000ab.e12");
  EXPECT_EQ(ParseSegmentName(".f.00000000000000ab.e12", "f", kId), Epoch{12});
  EXPECT_EQ(ParseSegmentName(".f.00000000000000ab.e2", "f", kId), Epoch{2});
  for (const char* bad :
       {"", "f", ".f", ".f.00000000000000ab.e", ".f.00000000000000ab.e1", ".f.00000000000000ab.e0",
        ".f.00000000000000ab.e012", ".f.00000000000000ab.e12x", ".f.00000000000000ab.e-3",
        ".g.00000000000000ab.e12", "xf.00000000000000ab.e12",
        ".f.00000000000000ab.e99999999999999999999", ".f.00000000000000ab.e16777216",
        ".f.00000000000000ac.e2", ".f.x.00000000000000ab.e2"}) {
    EXPECT_EQ(ParseSegmentName(bad, "f", kId), std::nullopt) << bad;
  }
}

TEST(PosixFormat, DecodersSurviveRandomBytes) {
  Rng rng(1);
  const std::string good = EncodePage(ExampleHeader(), {}, {});
  for (int i = 0; i < 20'000; ++i) {
    std::string page = rng.Chance(0.5) ? good : std::string(rng.Below(5000), '\0');
    for (uint64_t k = rng.Below(20); k > 0 && !page.empty(); --k) {
      page[rng.Below(page.size())] = static_cast<char>(rng.Next());
    }
    if (rng.Chance(0.2)) page.resize(rng.Below(page.size() + 1));
    const Result<Header> header = DecodeHeader(page);
    SlotsOf(page, header.ok() ? *header : ExampleHeader());
    HasTombstone(page);
  }
}

TEST(StoreNames, SayWhatIsWrong) {
  EXPECT_TRUE(CheckFileName("file name", "a b-c.1").ok());
  EXPECT_TRUE(CheckFolder("").ok());
  EXPECT_TRUE(CheckFolder("a/b/c").ok());
  EXPECT_EQ(CheckFileName("key", "a/b").message(), "key 'a/b' has a '/'");
  EXPECT_EQ(CheckFolder("a//b").message(), "folder '' is empty");
  EXPECT_NE(CheckFileName("key", std::string(161, 'x')).message().find("161"), std::string::npos);
}

}  // namespace
}  // namespace tailcast::storage::posix
