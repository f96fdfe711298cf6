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

}  // namespace
}  // namespace tailcast::cell
