#include "tailcast/cell/user_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tailcast::cell {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

MonotonicTime At(int64_t seconds) { return MonotonicTime() + Duration::Seconds(seconds); }

v1::User Consumer(uint64_t id, const std::string& name) {
  v1::User user;
  user.set_id(id);
  user.set_kind(v1::User::CONSUMER);
  user.set_stream("s");
  user.set_name(name);
  user.set_host("host");
  user.set_state("tailing");
  return user;
}

std::vector<std::string> Names(UserTable& table, MonotonicTime now) {
  std::vector<std::string> names;
  const v1::ListUsersReply list = table.List(now);
  for (const auto& row : list.rows()) names.push_back(row.user().name());
  return names;
}

TEST(UserTableTest, WhoReportsIsListedAsItSaidLast) {
  UserTable table({});
  ASSERT_TRUE(table.Report(At(0), Consumer(1, "b")).ok());
  ASSERT_TRUE(table.Report(At(1), Consumer(2, "a")).ok());
  v1::User again = Consumer(1, "b");
  again.set_behind_bytes(7);
  ASSERT_TRUE(table.Report(At(10), again).ok());
  const v1::ListUsersReply list = table.List(At(12));
  ASSERT_EQ(list.rows_size(), 2);
  EXPECT_EQ(list.rows(0).user().name(), "a");
  EXPECT_EQ(list.rows(0).heard_ms(), 11'000);
  EXPECT_EQ(list.rows(1).user().behind_bytes(), 7);
  EXPECT_EQ(list.rows(1).heard_ms(), 2000);
  EXPECT_EQ(table.Count(At(12), v1::User::CONSUMER), 2);
  EXPECT_EQ(table.Count(At(12), v1::User::PRODUCER), 0);
}

TEST(UserTableTest, WhoSaysNothingForLongIsForgotten) {
  UserTable table({.forget_after = Duration::Seconds(30)});
  ASSERT_TRUE(table.Report(At(0), Consumer(1, "a")).ok());
  ASSERT_TRUE(table.Report(At(20), Consumer(2, "b")).ok());
  EXPECT_THAT(Names(table, At(30)), ElementsAre("a", "b"));
  EXPECT_THAT(Names(table, At(31)), ElementsAre("b"));
  EXPECT_EQ(table.pushed_out(), 0);
}

TEST(UserTableTest, WhoSaysGoodByeIsNotListedAnyMore) {
  UserTable table({});
  v1::User gone = Consumer(1, "a");
  gone.set_gone(true);
  ASSERT_TRUE(table.Report(At(0), gone).ok()) << "of one that was not heard before";
  EXPECT_THAT(Names(table, At(0)), ElementsAre());
  ASSERT_TRUE(table.Report(At(0), Consumer(1, "a")).ok());
  ASSERT_TRUE(table.Report(At(0), Consumer(2, "b")).ok());
  v1::User forged = gone;
  forged.set_host("other");
  EXPECT_TRUE(IsInvalidArgument(table.Report(At(1), forged)));
  EXPECT_THAT(Names(table, At(1)), ElementsAre("a", "b"));
  ASSERT_TRUE(table.Report(At(1), gone).ok());
  EXPECT_THAT(Names(table, At(1)), ElementsAre("b"));
  EXPECT_EQ(table.Count(At(1), v1::User::CONSUMER), 1);
}

TEST(UserTableTest, AStreamThatIsDeletedHasNoUsers) {
  UserTable table({});
  v1::User other = Consumer(2, "b");
  other.set_stream("t");
  ASSERT_TRUE(table.Report(At(0), Consumer(1, "a")).ok());
  ASSERT_TRUE(table.Report(At(0), other).ok());
  table.ForgetStream("s");
  EXPECT_THAT(Names(table, At(0)), ElementsAre("b"));
}

TEST(UserTableTest, WhatTellsOneFromAnotherIsNotShownAndIsNoneForOthers) {
  UserTable table({});
  v1::User mine = Consumer(1, "mine");
  mine.set_pid(7);
  ASSERT_TRUE(table.Report(At(0), mine).ok());
  EXPECT_EQ(table.List(At(0)).rows(0).user().id(), 0u);
  for (const auto& change :
       {+[](v1::User& u) { u.set_host("other"); }, +[](v1::User& u) { u.set_pid(8); }}) {
    v1::User other = mine;
    change(other);
    other.set_name("theirs");
    EXPECT_THAT(table.Report(At(1), other).message(), HasSubstr("user.id"));
  }
  EXPECT_THAT(Names(table, At(1)), ElementsAre("mine"));
}

TEST(UserTableTest, TheHostThatHasMostGivesWay) {
  UserTable table({.rows_max = 4});
  const auto report = [&](int64_t at, uint64_t id, const std::string& name,
                          const std::string& host) {
    v1::User user = Consumer(id, name);
    user.set_host(host);
    ASSERT_TRUE(table.Report(At(at), user).ok());
  };
  report(0, 1, "a", "small");
  report(1, 2, "b", "big");
  report(2, 3, "c", "big");
  report(3, 4, "d", "other");
  for (uint64_t id = 10; id < 20; ++id) report(4, id, "x", "big");
  EXPECT_THAT(Names(table, At(4)), ElementsAre("a", "d", "x", "x"));
  EXPECT_EQ(table.pushed_out(), 10);
}

TEST(UserTableTest, OfMoreThanItHoldsThoseStayThatWereHeardLast) {
  UserTable table({.rows_max = 2});
  ASSERT_TRUE(table.Report(At(0), Consumer(1, "a")).ok());
  ASSERT_TRUE(table.Report(At(1), Consumer(2, "b")).ok());
  ASSERT_TRUE(table.Report(At(2), Consumer(1, "a")).ok());
  ASSERT_TRUE(table.Report(At(3), Consumer(3, "c")).ok());
  EXPECT_THAT(Names(table, At(3)), ElementsAre("a", "c"));
  EXPECT_EQ(table.pushed_out(), 1);
}

TEST(UserTableTest, BadFieldsAreNamed) {
  UserTable table({});
  const auto refused = [&](const auto& change) {
    v1::User user = Consumer(1, "a");
    change(user);
    const Status status = table.Report(At(0), user);
    EXPECT_TRUE(IsInvalidArgument(status)) << status;
    return status.message();
  };
  EXPECT_THAT(refused([](v1::User& u) { u.set_id(0); }), HasSubstr("user.id"));
  EXPECT_THAT(refused([](v1::User& u) { u.set_kind(v1::User::UNKNOWN); }), HasSubstr("user.kind"));
  EXPECT_THAT(refused([](v1::User& u) { u.set_name(""); }), HasSubstr("user.name"));
  EXPECT_THAT(refused([](v1::User& u) { u.set_name(std::string(101, 'x')); }),
              HasSubstr("has 101 bytes; the limit is 100"));
  EXPECT_THAT(refused([](v1::User& u) { u.set_name("a\nb"); }), HasSubstr("control characters"));
  EXPECT_THAT(refused([](v1::User& u) { u.set_stream("../x"); }), HasSubstr("user.stream"));
  EXPECT_THAT(refused([](v1::User& u) { u.set_host(std::string(256, 'x')); }),
              HasSubstr("user.host"));
  EXPECT_THAT(refused([](v1::User& u) { u.set_state("\x1b[2J"); }), HasSubstr("user.state"));
  EXPECT_THAT(refused([](v1::User& u) { u.set_state("\xc2\x9b 2J"); }), HasSubstr("user.state"));
  EXPECT_THAT(refused([](v1::User& u) { u.set_shards(10'001); }), HasSubstr("user.shards"));
  EXPECT_THAT(refused([](v1::User& u) { u.set_behind_bytes(-1); }), HasSubstr("below 0"));
  // A field of another version, number 100 with 2,000 bytes.
  EXPECT_THAT(refused([](v1::User& u) {
                const std::string unknown = "\xa2\x06\xd0\x0f" + std::string(2000, 'x');
                ASSERT_TRUE(u.ParseFromString(u.SerializeAsString() + unknown));
              }),
              HasSubstr("user has 20"));
  EXPECT_THAT(Names(table, At(0)), ElementsAre());
}

TEST(UserTableTest, ANameIsTextOfOneLine) {
  EXPECT_TRUE(ValidateUserName("Preise für Köln #7").ok());
  EXPECT_TRUE(ValidateUserName(std::string(100, 'x')).ok());
  EXPECT_THAT(ValidateUserName("\xff").message(), HasSubstr("not UTF-8"));
}

}  // namespace
}  // namespace tailcast::cell
