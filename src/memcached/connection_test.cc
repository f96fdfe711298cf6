#include "tailcast/memcached/connection.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/memcached/memcached_testing.h"

namespace tailcast::memcached {
namespace {

// A peer that answers each connection's first request with the next of some texts, and closes or
// falls silent after it.
class ScriptedPeer {
 public:
  explicit ScriptedPeer(std::vector<std::string> answers, bool closes)
      : answers_(std::move(answers)), closes_(closes) {
    std::string pattern = std::filesystem::temp_directory_path().string() + "/peer-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    address_.host = folder_ + "/s";
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, address_.host.c_str(), sizeof(name.sun_path) - 1);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    thread_ = std::thread([this] { Run(); });
  }
  ~ScriptedPeer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    for (const int fd : silent_) close(fd);
    close(listener_);
    std::filesystem::remove_all(folder_);
  }
  const ServerAddress& address() const { return address_; }

 private:
  void Run() {
    for (const std::string& answer : answers_) {
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      char request[4096];
      if (recv(fd, request, sizeof request, 0) > 0) {
        EXPECT_EQ(send(fd, answer.data(), answer.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(answer.size()));
      }
      if (closes_) {
        close(fd);
      } else {
        silent_.push_back(fd);
      }
    }
  }

  const std::vector<std::string> answers_;
  const bool closes_;
  std::string folder_;
  ServerAddress address_;
  int listener_ = -1;
  std::vector<int> silent_;
  std::thread thread_;
};

TEST(ConnectionTest, AddsSwapsGetsAndDeletes) {
  TestServers servers(1);
  if (HasFatalFailure()) return;
  Connection connection = servers.Connect(0);
  EXPECT_EQ(connection.Add("a", "one", 60), StoreResult::kDone);
  EXPECT_EQ(connection.Add("a", "two", 60), StoreResult::kConflict);
  std::vector<Connection::Item> items;
  const std::vector<std::string> names = {"b", "a", "a", "c"};
  ASSERT_TRUE(connection.Get(names, items));
  ASSERT_EQ(items.size(), 4u);
  EXPECT_EQ(items[0].bytes, std::nullopt);
  EXPECT_EQ(items[1].bytes, "one");
  EXPECT_EQ(items[2].bytes, "one");
  EXPECT_EQ(items[3].bytes, std::nullopt);
  EXPECT_EQ(connection.Swap("a", std::string("\0\r\n", 3), 60, items[1].version),
            StoreResult::kDone);
  EXPECT_EQ(connection.Swap("a", "late", 60, items[1].version), StoreResult::kConflict);
  EXPECT_EQ(connection.Swap("b", "absent", 60, items[1].version), StoreResult::kAbsent);
  ASSERT_TRUE(connection.Get(names, items));
  EXPECT_EQ(items[1].bytes, std::string("\0\r\n", 3));
  EXPECT_EQ(connection.Delete("a"), StoreResult::kDone);
  EXPECT_EQ(connection.Delete("a"), StoreResult::kAbsent);
}

TEST(ConnectionTest, TooLargeItemsAreRefusedAndTheNextOnesAreNot) {
  TestServers servers(1);
  if (HasFatalFailure()) return;
  Connection connection = servers.Connect(0);
  EXPECT_EQ(connection.Add("a", std::string(3 << 20, 'x'), 60), StoreResult::kRefused);
  EXPECT_EQ(connection.Add("a", std::string(512 << 10, 'x'), 60), StoreResult::kDone);
  std::vector<Connection::Item> items;
  const std::vector<std::string> names = {"a"};
  ASSERT_TRUE(connection.Get(names, items));
  EXPECT_EQ(items[0].bytes->size(), size_t{512} << 10);
}

TEST(ConnectionTest, ManyKeysAreSeveralRequests) {
  TestServers servers(1);
  if (HasFatalFailure()) return;
  Connection connection = servers.Connect(0);
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) {
    names.push_back("key" + std::to_string(i));
    if (i % 3 != 0) {
      EXPECT_EQ(connection.Add(names.back(), names.back(), 60), StoreResult::kDone);
    }
  }
  std::vector<Connection::Item> items;
  ASSERT_TRUE(connection.Get(names, items));
  ASSERT_EQ(items.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(items[i].bytes, i % 3 != 0 ? std::optional(names[i]) : std::nullopt);
  }
}

TEST(ConnectionTest, ServerThatRestartedIsFoundAgainInTheSameOperation) {
  TestServers servers(1);
  if (HasFatalFailure()) return;
  Connection connection = servers.Connect(0);
  EXPECT_EQ(connection.Add("a", "one", 60), StoreResult::kDone);
  servers.Restart(0);
  std::vector<Connection::Item> items;
  const std::vector<std::string> names = {"a"};
  ASSERT_TRUE(connection.Get(names, items)) << connection.last_error();
  EXPECT_EQ(items[0].bytes, std::nullopt);
  EXPECT_EQ(connection.reconnections(), 1u);
  servers.Kill(0);
  EXPECT_FALSE(connection.Get(names, items));
  EXPECT_NE(connection.last_error(), "");
  EXPECT_EQ(connection.Add("a", "one", 60), std::nullopt);
  EXPECT_FALSE(connection.Ping());
}

// libmemcached says "not found" of all of these.
TEST(ConnectionTest, AnswersThatBreakOffAreNeverTakenForAbsence) {
  const std::vector<std::string> answers = {"",
                                            "VAL",
                                            "VALUE a 0 8 1\r\n",
                                            "VALUE a 0 8 1\r\nabcd",
                                            "VALUE a 0 8 1\r\nabcdefgh\r\n",
                                            "VALUE other 0 1 1\r\nx\r\nEND\r\n",
                                            "ERROR\r\n",
                                            "SERVER_ERROR busy\r\n",
                                            "gibberish\r\n"};
  for (const bool closes : {true, false}) {
    for (const std::string& answer : answers) {
      ScriptedPeer peer({answer}, closes);
      Connection connection(peer.address(), Duration::Millis(50));
      std::vector<Connection::Item> items;
      const std::vector<std::string> names = {"a", "b"};
      EXPECT_FALSE(connection.Get(names, items)) << answer << closes;
      EXPECT_NE(connection.last_error(), "");
    }
  }
}

TEST(ConnectionTest, EachFailureHasItsCause) {
  using Failure = Connection::Failure;
  const auto ask = [](Connection& connection) {
    std::vector<Connection::Item> items;
    const std::vector<std::string> names = {"a"};
    EXPECT_FALSE(connection.Get(names, items));
    return connection.last_failure();
  };
  Connection nobody(ServerAddress{"127.0.0.1", 1}, Duration::Millis(200));
  EXPECT_FALSE(nobody.Ping());
  EXPECT_EQ(nobody.last_failure(), Failure::kUnreachable);
  EXPECT_EQ(nobody.last_error(), "no connection");
  EXPECT_EQ(ask(nobody), Failure::kUnreachable);
  ScriptedPeer silent({""}, false);
  Connection to_silent(silent.address(), Duration::Millis(50));
  EXPECT_EQ(ask(to_silent), Failure::kTimeout);
  EXPECT_EQ(to_silent.last_error(), "no answer in time");
  ScriptedPeer busy({"SERVER_ERROR busy\r\n"}, false);
  Connection to_busy(busy.address(), Duration::Millis(50));
  EXPECT_EQ(ask(to_busy), Failure::kRefused) << to_busy.last_error();
  ScriptedPeer strange({"VALUE other 0 1 1\r\nx\r\nEND\r\n"}, false);
  Connection to_strange(strange.address(), Duration::Millis(50));
  EXPECT_EQ(ask(to_strange), Failure::kBroken) << to_strange.last_error();
}

TEST(ConnectionTest, ChangesWithoutAnAnswerAreNotKnown) {
  for (const bool closes : {true, false}) {
    for (const char* answer : {"", "STO", "gibberish\r\n", "ERROR\r\n"}) {
      ScriptedPeer peer({answer}, closes);
      Connection connection(peer.address(), Duration::Millis(50));
      EXPECT_EQ(connection.Add("a", "x", 60), std::nullopt) << answer << closes;
    }
  }
}

TEST(ConnectionTest, SilentServersCostTheirTimeout) {
  TestServers servers(1);
  if (HasFatalFailure()) return;
  Connection connection = servers.Connect(0);
  EXPECT_TRUE(connection.Ping());
  servers.Stop(0);
  connection.SetTimeout(Duration::Millis(30));
  const MonotonicTime start = ReadMonotonicClock();
  std::vector<Connection::Item> items;
  const std::vector<std::string> names = {"a"};
  EXPECT_FALSE(connection.Get(names, items));
  EXPECT_EQ(connection.Add("a", "one", 60), std::nullopt);
  const Duration took = ReadMonotonicClock() - start;
  EXPECT_GE(took, Duration::Millis(30));
  EXPECT_LT(took, Duration::Seconds(5));
  servers.Continue(0);
  connection.SetTimeout(Duration::Seconds(5));
  EXPECT_TRUE(connection.Ping());
}

}  // namespace
}  // namespace tailcast::memcached
