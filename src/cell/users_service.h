// Takes and lists the reports of a cell's users (proto/users.proto), beside its scheduler. Nothing
// else of the scheduler knows of them.
//
// Threads: everything on the server's loop.
#pragma once

#include <string>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/metrics.h"
#include "tailcast/base/scope.h"
#include "tailcast/cell/user_table.h"
#include "tailcast/rpc/rpc.h"

namespace tailcast::cell {

class UsersService {
 public:
  // All outlive it. Before the server starts.
  UsersService(EventLoop& loop, rpc::Server& server, MetricRegistry& metrics);
  UsersService(const UsersService&) = delete;
  UsersService& operator=(const UsersService&) = delete;

  // It was deleted.
  void ForgetStream(const std::string& stream) { table_.ForgetStream(stream); }

 private:
  void Report(const std::string& bytes, rpc::Responder respond);
  void Count();

  EventLoop& loop_;
  UserTable table_{{}};
  Gauge &producers_, &consumers_;
  Counter &refused_, &pushed_out_;
  Timer count_{loop_};
  Scope scope_;
};

}  // namespace tailcast::cell
