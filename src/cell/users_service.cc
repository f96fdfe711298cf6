#include "tailcast/cell/users_service.h"

#include <string>
#include <utility>

namespace tailcast::cell {
namespace {

constexpr char kUsers[] = "tailcast_users";
constexpr char kUsersHelp[] = "Producers, and consumers that report, that were heard lately.";

}  // namespace

UsersService::UsersService(EventLoop& loop, rpc::Server& server, MetricRegistry& metrics)
    : loop_(loop),
      producers_(metrics.GetGauge(kUsers, kUsersHelp, {{"kind", "producer"}})),
      consumers_(metrics.GetGauge(kUsers, kUsersHelp, {{"kind", "consumer"}})),
      refused_(metrics.GetCounter("tailcast_user_reports_refused_total",
                                  "Reports of producers and consumers with a bad field.")),
      pushed_out_(metrics.GetCounter("tailcast_users_pushed_out_total",
                                     "Users that made room for others in the list.")) {
  server.Handle("/tailcast.v1.Users/Report",
                scope_.Bind([this](const std::string& bytes, rpc::Responder respond) {
                  Report(bytes, std::move(respond));
                }));
  server.Handle("/tailcast.v1.Users/List",
                scope_.Bind([this](const std::string&, rpc::Responder respond) {
                  respond(table_.List(loop_.Now()).SerializeAsString());
                }));
}

void UsersService::Report(const std::string& bytes, rpc::Responder respond) {
  const auto request = rpc::Parse<v1::ReportUserRequest>(bytes);
  Status status = request.status();
  const int64_t before = table_.pushed_out();
  if (request.ok()) status = table_.Report(loop_.Now(), request->user());
  if (!status.ok()) {
    refused_.Add();
    return respond(std::move(status));
  }
  pushed_out_.Add(table_.pushed_out() - before);
  if (!count_.armed()) Count();
  respond(v1::ReportUserReply().SerializeAsString());
}

// As long as there is one.
void UsersService::Count() {
  const MonotonicTime now = loop_.Now();
  producers_.Set(table_.Count(now, v1::User::PRODUCER));
  consumers_.Set(table_.Count(now, v1::User::CONSUMER));
  if (producers_.value() + consumers_.value() == 0) return;
  count_.After(Duration::Seconds(1), scope_.Bind([this] { Count(); }));
}

}  // namespace tailcast::cell
