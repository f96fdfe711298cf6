#include "tailcast/app/followed_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tailcast/base/rng.h"

namespace tailcast::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Files in memory. What is open stays, whatever becomes of its names.
class FakeFiles : public FileSystem {
 public:
  struct File {
    uint64_t inode = 0;
    std::string bytes;
    int64_t modified_ns = 0;
    int names = 1;
    bool readable = true;
    bool fault = false;  // reads fail
  };
  bool folder_readable = true;
  bool fault = false;  // of each file

  void Append(const std::string& path, const std::string& bytes) { Touch(path).bytes += bytes; }
  void Set(const std::string& path, const std::string& bytes) { Touch(path).bytes = bytes; }
  void Rename(const std::string& from, const std::string& to) {
    Remove(to);
    names_[to] = names_.at(from);
    names_.erase(from);
  }
  void Remove(const std::string& path) {
    const auto at = names_.find(path);
    if (at == names_.end()) return;
    at->second->names = 0;
    if (at->second.use_count() == 1) free_inodes_.insert(at->second->inode);
    names_.erase(at);
  }
  File& Touch(const std::string& path) {
    auto& file = names_[path];
    if (file == nullptr) {
      file = std::make_shared<File>();
      // As file systems do: the number of one that is gone comes again at once.
      file->inode = free_inodes_.empty() ? ++inodes_ : *free_inodes_.begin();
      free_inodes_.erase(file->inode);
    }
    file->modified_ns = ++clock_ns_;
    return *file;
  }
  File& At(const std::string& path) { return *names_.at(path); }
  bool Has(const std::string& path) const { return names_.contains(path); }

  Result<FileInfo> Stat(const std::string& path) override {
    const auto at = names_.find(path);
    if (at == names_.end()) return NotFoundError(path + ": no such file");
    return InfoOf(*at->second);
  }
  Result<std::unique_ptr<OpenedFile>> Open(const std::string& path) override {
    const auto at = names_.find(path);
    if (at == names_.end()) return NotFoundError("open " + path + ": no such file");
    if (!at->second->readable) return PermissionDeniedError("open " + path + ": not allowed");
    return std::unique_ptr<OpenedFile>(std::make_unique<Opened>(*this, at->second));
  }
  Result<std::vector<std::string>> Rotated(const std::string& path) override {
    if (!folder_readable) return PermissionDeniedError("list /: not allowed");
    std::vector<std::string> found;
    for (const auto& [name, file] : names_) {
      if (IsRotatedName(path, name)) found.push_back(name);
    }
    return found;
  }

 private:
  class Opened : public OpenedFile {
   public:
    Opened(const FakeFiles& files, std::shared_ptr<File> file)
        : files_(files), file_(std::move(file)) {}
    Result<FileInfo> Info() override { return InfoOf(*file_); }
    Result<std::string> Read(int64_t at, int64_t bytes) override {
      if (files_.fault || file_->fault) return UnavailableError("read: I/O error");
      if (at >= static_cast<int64_t>(file_->bytes.size())) return std::string();
      return file_->bytes.substr(static_cast<size_t>(at), static_cast<size_t>(bytes));
    }

   private:
    const FakeFiles& files_;
    const std::shared_ptr<File> file_;
  };
  static FileInfo InfoOf(const File& file) {
    return {.device = 1,
            .inode = file.inode,
            .size = static_cast<int64_t>(file.bytes.size()),
            .modified_ns = file.modified_ns,
            .linked = file.names > 0};
  }

  std::map<std::string, std::shared_ptr<File>> names_;
  std::set<uint64_t> free_inodes_;
  uint64_t inodes_ = 0;
  int64_t clock_ns_ = 0;
};

class FollowedPathTest : public ::testing::Test {
 protected:
  void Start(const std::vector<FilePlace>& known = {}, bool from_end = false) {
    path_.emplace(files_, "/log",
                  FollowedPath::Options{
                      .message_bytes_max = 100, .from_end = from_end, .others = {"/log.77"}},
                  [this](const std::string& text) { said_.push_back(text); });
    ASSERT_TRUE(path_->Begin(known, now_).ok());
  }
  std::vector<FilePlace> Stop() {
    std::vector<FilePlace> places = path_->Places();
    path_.reset();
    return places;
  }
  // Everything that is there.
  std::string Take() {
    std::string bytes;
    path_->Look(now_);
    while (auto piece = path_->Read(now_)) bytes += piece->bytes;
    now_ = now_ + Duration::Millis(100);
    return bytes;
  }

  FakeFiles files_;
  MonotonicTime now_ = MonotonicTime() + Duration::Seconds(100);
  std::optional<FollowedPath> path_;
  std::vector<std::string> said_;
};

TEST_F(FollowedPathTest, WholeLinesComeAndALastOneWaitsUntilItIsWhole) {
  files_.Append("/log", "a\nb\nhal");
  Start();
  EXPECT_EQ(Take(), "a\nb\n");
  EXPECT_EQ(path_->unfinished_bytes(), 3);
  now_ = now_ + Duration::Seconds(1000);
  EXPECT_EQ(Take(), "");
  files_.Append("/log", "f\nc");
  EXPECT_EQ(Take(), "half\n");
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(FollowedPathTest, ALineThatIsTooLongIsCut) {
  files_.Append("/log", std::string(250, 'x') + "\ny\n");
  Start();
  path_->Look(now_);
  const auto piece = path_->Read(now_);
  EXPECT_EQ(piece->bytes, std::string(100, 'x'));
  EXPECT_EQ(piece->to.offset, 100);
  EXPECT_EQ(Take(), std::string(150, 'x') + "\ny\n");
  EXPECT_THAT(said_.front(), HasSubstr("more than 100 bytes is cut"));
}

TEST_F(FollowedPathTest, ARenamedFileIsReadToItsEndBeforeTheNewOne) {
  files_.Append("/log", "a\n");
  Start();
  EXPECT_EQ(Take(), "a\n");
  files_.Append("/log", "b\n");
  files_.Rename("/log", "/log.1");
  files_.Append("/log", "d\n");
  files_.Append("/log.1", "c\n");
  EXPECT_EQ(Take(), "b\nc\nd\n");
  files_.Append("/log.1", "who was slow\n");
  EXPECT_EQ(Take(), "who was slow\n");
  files_.Append("/log.1", "no end");
  EXPECT_EQ(Take(), "");
  EXPECT_FALSE(path_->idle());
  now_ = now_ + Duration::Seconds(6);
  EXPECT_EQ(Take(), "no end") << "nobody will end it";
  EXPECT_TRUE(path_->idle());
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(FollowedPathTest, FilesThatHadThePathWhileNobodyLookedAreRead) {
  files_.Append("/log.1", "long ago\n");
  files_.Append("/log", "a\n");
  Start();
  EXPECT_EQ(Take(), "a\n");
  for (const char* line : {"b\n", "c\n", "d\n"}) {
    files_.Rename("/log.1", "/log.2");
    files_.Rename("/log", "/log.1");
    files_.Append("/log", line);
  }
  EXPECT_EQ(Take(), "b\nc\nd\n");
}

TEST_F(FollowedPathTest, WhatLiesBesideItWithALikeNameIsNotRead) {
  files_.Append("/log", "a\n");
  Start();
  EXPECT_EQ(Take(), "a\n");
  for (const char* name :
       {"/log.places", "/log.places.lock", "/log.places.part", "/log.err", "/log~", "/log.1~",
        "/log.1.gpg", "/log.1.Z", "/log.2.gz.tmp", "/log.2.gz", "/log1", "/log.", "/log.77"}) {
    files_.Append(name, std::string(name) + "\n");
  }
  files_.Append("/log.20130131", "between\n");
  const auto beside = [&] {
    for (const char* name : {"/log.err", "/log.77"}) files_.Append(name, "more\n");
  };
  beside();
  files_.Rename("/log", "/log-20130131");
  files_.Append("/log", "b\n");
  EXPECT_EQ(Take(), "between\nb\n");
  const auto known = Stop();
  beside();
  files_.Rename("/log", "/log-2013-02-01T12:00");
  files_.Append("/log", "c\n");
  Start(known);
  EXPECT_EQ(Take(), "c\n");
  files_.Set("/log.1", files_.At("/log").bytes);
  beside();
  files_.Set("/log", "cut\n");
  EXPECT_EQ(Take(), "cut\n");
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(FollowedPathTest, ATruncatedFileBeginsAnewBehindItsCopy) {
  files_.Append("/log", "a\n");
  Start();
  EXPECT_EQ(Take(), "a\n");
  files_.Append("/log", "b\n");
  files_.Set("/log.1", files_.At("/log").bytes);
  files_.Set("/log", "");
  files_.Append("/log", "now it is longer than it was\n");
  EXPECT_EQ(Take(), "b\nnow it is longer than it was\n");
  EXPECT_THAT(said_, IsEmpty());
  files_.Set("/log", "no copy\n");
  EXPECT_EQ(Take(), "no copy\n");
  EXPECT_THAT(said_, ElementsAre(HasSubstr("was truncated, and there is no copy")));
}

TEST_F(FollowedPathTest, WhatIsKnownOfAFileIsGoneOnFrom) {
  files_.Append("/log", "a\nb\n");
  Start();
  EXPECT_EQ(Take(), "a\nb\n");
  const auto known = Stop();
  files_.Append("/log", "c\n");
  Start(known);
  EXPECT_EQ(Take(), "c\n");
}

TEST_F(FollowedPathTest, AFileThatWasRotatedWhileNobodyRanIsFoundByItsInode) {
  files_.Append("/log", "a\n");
  Start();
  EXPECT_EQ(Take(), "a\n");
  const auto known = Stop();
  files_.Append("/log", "b\n");
  files_.Rename("/log", "/log.1");
  files_.Append("/log", "c\n");
  files_.Rename("/log.1", "/log.2");
  files_.Rename("/log", "/log.1");
  files_.Append("/log", "d\n");
  Start(known);
  EXPECT_EQ(Take(), "b\nc\nd\n");
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(FollowedPathTest, AFileThatWasTruncatedWhileNobodyRanIsFoundByItsCopy) {
  files_.Append("/log", "a\n");
  Start();
  EXPECT_EQ(Take(), "a\n");
  const auto known = Stop();
  files_.Append("/log", "b\n");
  files_.Set("/log.1", files_.At("/log").bytes);
  files_.Set("/log", "c\nd\n");
  Start(known);
  EXPECT_EQ(Take(), "b\nc\nd\n");
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(FollowedPathTest, WhatIsGoneIsToldWithItsBytes) {
  files_.Append("/log", "a\n");
  Start();
  EXPECT_EQ(Take(), "a\n");
  files_.Append("/log", "unfinished");
  EXPECT_EQ(Take(), "");
  const auto known = Stop();
  files_.Remove("/log");
  files_.Append("/log", "new, of the same inode\n");
  EXPECT_EQ(files_.At("/log").inode, known[0].key.inode);
  Start(known);
  EXPECT_EQ(Take(), "new, of the same inode\n");
  EXPECT_THAT(said_, ElementsAre(HasSubstr("10 bytes of it from byte 2 on are lost")));
}

TEST_F(FollowedPathTest, AFileThatComesBackGoesOnAndOneThatCantBeReadIsWaitedFor) {
  files_.Append("/log", "a\n");
  Start();
  EXPECT_EQ(Take(), "a\n");
  files_.Rename("/log", "/elsewhere");
  EXPECT_EQ(Take() + Take(), "");
  EXPECT_THAT(said_, ElementsAre(HasSubstr("waiting for it")));
  files_.Append("/elsewhere", "b\n");
  EXPECT_EQ(Take(), "b\n");
  files_.Rename("/elsewhere", "/log");
  files_.Append("/log", "c\n");
  EXPECT_EQ(Take(), "c\n");
  const auto known = Stop();
  files_.At("/log").readable = false;
  files_.Append("/log", "d\n");
  Start(known);
  EXPECT_EQ(Take() + Take(), "");
  EXPECT_THAT(said_.back(), HasSubstr("not allowed"));
  files_.At("/log").readable = true;
  EXPECT_EQ(Take(), "d\n") << "a, b and c were given before";
}

// What can't be read is not taken for other bytes.
TEST_F(FollowedPathTest, AReadThatFailsIsTriedAgain) {
  files_.Append("/log", "a\n");
  Start();
  EXPECT_EQ(Take(), "a\n");
  files_.Append("/log", "b\n");
  files_.At("/log").fault = true;
  EXPECT_EQ(Take() + Take(), "");
  EXPECT_THAT(said_, ElementsAre(HasSubstr("I/O error")));
  EXPECT_FALSE(path_->idle());
  files_.At("/log").fault = false;
  EXPECT_EQ(Take(), "b\n");
  EXPECT_EQ(Take(), "");
  EXPECT_TRUE(path_->idle());
  // That of a copy, neither.
  files_.Append("/log", "c\n");
  files_.Set("/log.1", files_.At("/log").bytes);
  files_.Set("/log", "d\n");
  files_.At("/log.1").fault = true;
  EXPECT_EQ(Take() + Take(), "");
  EXPECT_EQ(said_.size(), 2U);
  files_.At("/log.1").fault = false;
  EXPECT_EQ(Take(), "c\nd\n");
  EXPECT_EQ(said_.size(), 2U);
}

TEST_F(FollowedPathTest, AReadThatFailsAtTheStartIsTriedAgain) {
  files_.Append("/log", "a\n");
  Start();
  EXPECT_EQ(Take(), "a\n");
  auto known = Stop();
  files_.Append("/log", "b\n");
  files_.At("/log").fault = true;
  Start(known);
  EXPECT_EQ(Take() + Take(), "");
  EXPECT_THAT(said_, ElementsAre(HasSubstr("I/O error")));
  EXPECT_FALSE(path_->idle());
  files_.At("/log").fault = false;
  EXPECT_EQ(Take(), "b\n");
  // Rotated meanwhile; and its folder.
  known = Stop();
  files_.Append("/log", "c\n");
  files_.Rename("/log", "/log.1");
  files_.Append("/log", "d\n");
  files_.At("/log.1").fault = true;
  Start(known);
  EXPECT_EQ(Take() + Take(), "");
  files_.At("/log.1").fault = false;
  files_.folder_readable = false;
  EXPECT_EQ(Take() + Take(), "");
  EXPECT_THAT(said_.back(), HasSubstr("list /: not allowed"));
  files_.folder_readable = true;
  EXPECT_EQ(Take(), "c\nd\n");
  EXPECT_EQ(said_.size(), 3U);
}

TEST_F(FollowedPathTest, WhatStandsInTheWayAtTheStartIsSaidOnce) {
  files_.Append("/log", "a\n");
  Start();
  EXPECT_EQ(Take(), "a\n");
  files_.Rename("/log", "/log.1");
  files_.Append("/log", "b\n");
  EXPECT_EQ(Take(), "b\n");
  const auto known = Stop();
  files_.Remove("/log.1");
  files_.Touch("/x");  // has the inode now
  files_.Append("/log.9", "may be a copy\n");
  files_.At("/log.9").readable = false;
  files_.At("/log").fault = true;
  Start(known);
  EXPECT_EQ(Take() + Take() + Take(), "");
  EXPECT_EQ(said_.size(), 2U) << ::testing::PrintToString(said_);
  files_.At("/log").fault = false;
  files_.Append("/log", "c\n");
  EXPECT_EQ(Take(), "c\n");
}

TEST_F(FollowedPathTest, ATailThatCantBeReadIsNoBeginning) {
  files_.Append("/log", "a\n");
  files_.fault = true;
  Start({}, true);
  EXPECT_EQ(Take(), "");
  files_.fault = false;
  EXPECT_EQ(Take(), "");
  files_.Append("/log", "b\n");
  EXPECT_EQ(Take(), "b\n");
}

TEST_F(FollowedPathTest, ItIsIdleWhereAFileIsNotThereAndNotWhereItCantBeRead) {
  Start();
  EXPECT_EQ(Take(), "");
  EXPECT_TRUE(path_->idle());
  files_.Append("/log", "a\n");
  files_.At("/log").readable = false;
  EXPECT_EQ(Take(), "");
  EXPECT_FALSE(path_->idle());
  files_.At("/log").readable = true;
  EXPECT_EQ(Take(), "a\n");
  EXPECT_TRUE(path_->idle());
}

TEST_F(FollowedPathTest, ADeletedFileIsLookedAtOnceMoreBeforeItIsLeft) {
  files_.Append("/log", "a\n");
  Start();
  EXPECT_EQ(Take(), "a\n");
  files_.Rename("/log", "/log.1");
  files_.Append("/log", "b\n");
  auto& old = files_.At("/log.1");
  files_.Remove("/log.1");
  EXPECT_EQ(Take(), "b\n");
  now_ = now_ + Duration::Seconds(6);
  old.bytes += "late\n";
  ++old.modified_ns;
  EXPECT_EQ(Take(), "late\n");
}

TEST_F(FollowedPathTest, AtTheEndIsBehindTheLastWholeLine) {
  files_.Append("/log", "a\nb\nhal");
  Start({}, true);
  EXPECT_EQ(Take(), "");
  files_.Append("/log", "f\n");
  EXPECT_EQ(Take(), "half\n");
}

TEST_F(FollowedPathTest, ItIsToldWhetherAFileHasAMessageBeforeAPlace) {
  files_.Append("/log", "first\nsecond\nthird\n");
  FilePlace place{.key = {"/log", 1, files_.At("/log").inode},
                  .offset = 13,
                  .mark = FileMark::Of(6, "first\n")};
  EXPECT_EQ(FollowedPath::EndsWith(files_, place, "second\n"), true);
  EXPECT_EQ(FollowedPath::EndsWith(files_, place, "foreign\n"), false);
  files_.Rename("/log", "/log.7");
  EXPECT_EQ(FollowedPath::EndsWith(files_, place, "second\n"), true);
  place.offset = 100;
  EXPECT_EQ(FollowedPath::EndsWith(files_, place, "second\n"), false) << "it never had so much";
  place.key.inode = 99;
  EXPECT_EQ(FollowedPath::EndsWith(files_, place, "second\n"), std::nullopt);
}

// Random lives: a writer, a rotation of one of both kinds, and ends of the one who follows at any
// place; in the end each line was given once, in the order in which it was written.
TEST_F(FollowedPathTest, WhateverHappensEachLineComesOnce) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    files_ = FakeFiles();
    said_.clear();
    const bool copies = seed % 2 == 0;
    std::string written, given;
    int line = 0;
    const auto rotate = [&] {
      for (int i = 9; i > 0; --i) {
        const std::string name = "/log." + std::to_string(i);
        if (files_.Has(name)) files_.Rename(name, "/log." + std::to_string(i + 1));
      }
      if (copies) {
        files_.Set("/log.1", files_.At("/log").bytes);
        files_.Set("/log", "");
      } else {
        files_.Rename("/log", "/log.1");
        files_.Touch("/log");
      }
    };
    files_.Touch("/log");
    Start();
    TailLedger ledger = *TailLedger::Recover({}, 0);
    std::vector<TailRun> kept;
    const auto look = [&] {
      if (rng.Chance(0.1)) {
        files_.fault = true;
        path_->Look(now_);
        ASSERT_FALSE(path_->Read(now_));
        if (path_->Enter(ledger, std::nullopt)) kept = ledger.runs();
        files_.fault = false;
      }
      path_->Look(now_);
      bool keep = false;
      while (auto piece = path_->Read(now_)) {
        keep |= path_->Enter(ledger, piece);
        given += piece->bytes;
      }
      keep |= path_->Enter(ledger, std::nullopt);
      if (keep) kept = ledger.runs();
      now_ = now_ + Duration::Millis(100);
    };
    // Of a file of which nothing was read nobody can tell its copy.
    written = "begun\n";
    files_.Append("/log", written);
    look();
    for (int step = 0; step < 60; ++step) {
      for (int64_t i = rng.Between(0, 3); i > 0; --i) {
        const std::string text = std::to_string(++line) + std::string(rng.Below(40), '.') + "\n";
        const size_t half = rng.Below(text.size());
        files_.Append("/log", text.substr(0, half));
        if (rng.Chance(0.2)) look();
        files_.Append("/log", text.substr(half));
        written += text;
      }
      look();
      if (rng.Chance(0.2)) rotate();
      if (rng.Chance(0.2)) {
        // It ends, and of what it gave last the stream has only a beginning.
        const size_t lines_from = given.size() - std::min<size_t>(given.size(), 60);
        const size_t end = given.find('\n', lines_from);
        if (ledger.OnDurable(end == std::string::npos ? 0 : static_cast<int64_t>(end + 1))) {
          kept = ledger.runs();
        }
        given.resize(end == std::string::npos ? given.size() : end + 1);
        const auto again = TailLedger::Recover(kept, static_cast<int64_t>(given.size()));
        ASSERT_TRUE(again.ok()) << again.status();
        ledger = *again;
        path_.reset();
        // Files go, and their inodes come again.
        for (int64_t i = rng.Chance(0.4) ? rng.Between(1, 3) : 0; i > 0; --i) {
          rotate();
          const std::string text = std::to_string(++line) + " while nobody looked\n";
          files_.Append("/log", text);
          written += text;
        }
        files_.fault = rng.Chance(0.2);
        Start(ledger.Places());
        files_.fault = false;
        (void)path_->Enter(ledger, std::nullopt);
        kept = ledger.runs();
        look();
      }
    }
    now_ = now_ + Duration::Seconds(10);
    given += Take();
    ASSERT_EQ(given, written) << ::testing::PrintToString(said_);
  }
}

}  // namespace
}  // namespace tailcast::app
