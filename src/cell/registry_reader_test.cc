#include "tailcast/cell/registry_reader.h"

#include <optional>

#include "gtest/gtest.h"
#include "tailcast/cell/registry_store.h"
#include "tailcast/sim/sim_loop.h"
#include "tailcast/storage/fake_store.h"

namespace tailcast::cell {
namespace {

class RegistryReaderTest : public ::testing::Test {
 protected:
  // A scheduler at this address begins; files of the log are rolled at this size.
  std::unique_ptr<RegistryStore> Begin(const std::string& address, int64_t file_bytes_max) {
    auto log = std::make_unique<RegistryStore>(
        *loop_, store_, RegistryStore::Options{.file_bytes_max = file_bytes_max});
    std::optional<Result<v1::RegistrySnapshot>> opened;
    log->Open(scope_.Bind([&](auto snapshot) { opened = std::move(snapshot); }));
    Until([&] { return opened.has_value(); });
    EXPECT_TRUE(opened->ok()) << opened->status();
    v1::RegistrySnapshot snapshot = **opened;
    snapshot.set_scheduler_address(address);
    Write(*log, snapshot);
    return log;
  }
  void Write(RegistryStore& log, const v1::RegistrySnapshot& snapshot) {
    std::optional<Status> written;
    log.Write(snapshot, scope_.Bind([&](Status status) { written = std::move(status); }));
    Until([&] { return written.has_value(); });
    EXPECT_TRUE(written->ok()) << *written;
  }
  // A file of the log, whoever has written it.
  void Put(const std::string& name, const std::string& bytes) {
    std::unique_ptr<storage::AppendFile> file;
    store_.CreateExclusive("registry", name, name,
                           scope_.Bind([&](auto created) { file = std::move(*created); }));
    Until([&] { return file != nullptr; });
    bool applied = false;
    file->AppendAt(0, bytes, scope_.Bind([&](const storage::AppendResult& result) {
      applied = result.outcome == storage::AppendOutcome::kApplied;
    }));
    Until([&] { return applied; });
  }
  Result<std::string> Find() {
    std::optional<Result<std::string>> found;
    reader_.FindScheduler(scope_.Bind([&](auto address) { found = std::move(address); }));
    Until([&] { return found.has_value(); });
    return *found;
  }
  template <typename Condition>
  void Until(Condition condition) {
    ASSERT_TRUE(time_.RunUntil(condition, Duration::Seconds(10)));
  }

  sim::VirtualTime time_{1};
  std::unique_ptr<sim::SimLoop> loop_ = time_.MakeLoop("user");
  storage::FakeDisk disk_{loop_.get(), 1};
  storage::FakeStore store_{&disk_, loop_.get()};
  RegistryReader reader_{store_};
  Scope scope_;
};

TEST_F(RegistryReaderTest, ACellWithoutARegistryHasNoScheduler) {
  EXPECT_TRUE(IsNotFound(Find().status()));
}

TEST_F(RegistryReaderTest, TheLastSchedulersAddressIsFoundAndNobodyIsFenced) {
  const auto first = Begin("a:1", 1 << 20);
  EXPECT_EQ(*Find(), "a:1");
  v1::RegistrySnapshot snapshot;
  snapshot.set_scheduler_address("a:1");
  Write(*first, snapshot);
  const auto second = Begin("b:2", 1 << 20);
  EXPECT_EQ(*Find(), "b:2");
}

TEST_F(RegistryReaderTest, TheLogIsFollowedOverItsFiles) {
  const auto log = Begin("a:1", 1);
  v1::RegistrySnapshot snapshot;
  for (int i = 2; i < 6; ++i) {
    snapshot.set_scheduler_address("a:" + std::to_string(i));
    Write(*log, snapshot);
    EXPECT_EQ(*Find(), snapshot.scheduler_address());
  }
  EXPECT_GT(disk_.PeekNames("registry").size(), 1u);
  // The next file was made, and nothing was written there yet.
  std::optional<Status> created;
  store_.CreateExclusive("registry", "0000000099.log", "0000000099.log",
                         scope_.Bind([&](const auto& file) { created = file.status(); }));
  Until([&] { return created.has_value(); });
  ASSERT_TRUE(created->ok());
  EXPECT_EQ(*Find(), "a:5");
}

TEST_F(RegistryReaderTest, AStoreWithAnotherRegistryOrNoneIsNotTheCells) {
  v1::CellView view;
  view.set_cell("near");
  view.set_registry_id(7);
  const auto check = [&] {
    std::optional<Status> checked;
    reader_.CheckOwner(view, scope_.Bind([&](Status status) { checked = std::move(status); }));
    Until([&] { return checked.has_value(); });
    return *checked;
  };
  EXPECT_NE(check().message().find("it has no registry"), std::string::npos) << check();
  EXPECT_TRUE(IsFailedPrecondition(check()));
  const auto log = Begin("a:1", 1 << 20);
  v1::RegistrySnapshot snapshot;
  snapshot.set_registry_id(8);
  Write(*log, snapshot);
  EXPECT_NE(check().message().find("another registry lies there"), std::string::npos) << check();
  snapshot.set_registry_id(7);
  Write(*log, snapshot);
  EXPECT_TRUE(check().ok()) << check();
}

TEST_F(RegistryReaderTest, DamageBeforeTheLastSnapshotIsToldAndATornEndIsNone) {
  v1::RegistrySnapshot snapshot;
  std::string log;
  std::vector<size_t> begins;
  for (int i = 1; i < 4; ++i) {
    snapshot.set_scheduler_address("a:" + std::to_string(i));
    begins.push_back(log.size());
    log += EncodeSnapshot(snapshot);
  }
  Put("0000000001.log", log + log.substr(0, begins[1] - 1));
  EXPECT_EQ(*Find(), "a:3");
  int number = 1;
  for (size_t at = 0; at < begins[2]; at += 7) {
    std::string damaged = log;
    damaged[at] ^= 4;
    const std::string name = "00000000" + std::to_string(10 + number++) + ".log";
    Put(name, damaged);
    const Status status = Find().status();
    ASSERT_TRUE(IsDataLoss(status)) << at << ": " << status;
    const size_t begin = begins[at < begins[1] ? 0 : 1];
    EXPECT_NE(status.message().find(name + " is damaged at byte " + std::to_string(begin) + ","),
              std::string::npos)
        << status;
  }
  log[begins[2]] ^= 4;
  Put("0000000099.log", log);
  EXPECT_EQ(*Find(), "a:2");
}

}  // namespace
}  // namespace tailcast::cell
