#include "tailcast/base/session_priority.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

namespace tailcast {
namespace {

constexpr char kSession[] = "/proc/self/autogroup";
constexpr int kRaised = -10;
constexpr int kLess = -5;
constexpr int kTries = 10;
constexpr std::chrono::milliseconds kBetweenTries(110);

// What this process gave the session that it leads.
struct Given {
  std::mutex mutex;
  pid_t pid = 0;   // who gave it: a process that was forked since has given nothing
  int nice = 0;    // 0: nothing
  int askers = 0;  // for less
};

// Never destroyed: threads may outlive main.
Given& TheGiven() {
  static Given& given = *new Given;
  return given;
}

// Under the mutex: what is asked for now. False: Linux says that it may be tried again.
bool Give(Given& given) {
  const int nice = given.askers > 0 ? kLess : kRaised;
  if (given.nice == nice) return true;
  // "/autogroup-4 nice 0", or nothing: in a control group, or where the kernel does not group.
  std::string name, word;
  int now = 0;
  if (!(std::ifstream(kSession) >> name >> word >> now) || now != given.nice) return true;
  std::ofstream file(kSession);
  errno = 0;
  file << nice << std::flush;
  if (file.good()) given.nice = nice;
  return file.good() || errno != EAGAIN;
}

// Under the mutex: the same, of one that was raised.
void Settle(Given& given) {
  if (given.nice != 0 && given.pid == getpid()) (void)Give(given);
}

}  // namespace

void RaiseOwnSession() {
  if (getsid(0) != getpid()) return;
  Given& given = TheGiven();
  for (int i = 0; i < kTries; ++i) {
    {
      const std::lock_guard lock(given.mutex);
      if (given.pid != getpid()) {
        given.pid = getpid();
        given.nice = 0;
      }
      if (given.nice != 0 || Give(given)) return;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

LessForOwnSession::LessForOwnSession() {
  Given& given = TheGiven();
  const std::lock_guard lock(given.mutex);
  ++given.askers;
  Settle(given);
}

LessForOwnSession::~LessForOwnSession() {
  Given& given = TheGiven();
  const std::lock_guard lock(given.mutex);
  --given.askers;
  Settle(given);
}

void SettleOwnSession() {
  Given& given = TheGiven();
  const std::lock_guard lock(given.mutex);
  Settle(given);
}

}  // namespace tailcast
