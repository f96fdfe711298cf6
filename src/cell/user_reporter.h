// Tells the scheduler of a cell, again and again, that somebody uses the cell (proto/users.proto).
// Nothing waits for it: what can't be told is not told.
//
// Threads: everything on the client's loop.
#pragma once

#include <functional>
#include <string>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/proto/users.pb.h"

namespace tailcast::cell {

class UserReporter {
 public:
  // Fills in what changes: from shards on. On the loop, until this ends.
  using Look = std::function<void(v1::User& user)>;

  // All outlive it. `user` has kind, stream and name; the rest is found out. The first report comes
  // a second later: who is gone by then was never there.
  UserReporter(EventLoop& loop, CellClient& client, v1::User user, Look look);
  UserReporter(const UserReporter&) = delete;
  UserReporter& operator=(const UserReporter&) = delete;

  // Reports no more; who has reported says good-bye. `done`: that has come to its end, however; not
  // called if this ends before.
  void SayGoodBye(Callback<void()> done);

 private:
  void Report();
  void OnAnswer(const Status& answer);

  EventLoop& loop_;
  CellClient& client_;
  v1::User user_;
  const Look look_;
  bool refused_ = false;   // and that was said
  bool reported_ = false;  // and not said good-bye
  Timer next_;
  Scope scope_;
};

}  // namespace tailcast::cell
