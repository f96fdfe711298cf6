#include "tailcast/cell/user_reporter.h"

#include <unistd.h>

#include <array>
#include <utility>

#include "tailcast/base/log.h"
#include "tailcast/base/rng.h"
#include "tailcast/cell/user_table.h"

namespace tailcast::cell {
namespace {

const Logger kLog("cell");
constexpr Duration kFirst = Duration::Seconds(1);

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

UserReporter::UserReporter(EventLoop& loop, CellClient& client, v1::User user, Look look)
    : loop_(loop), client_(client), user_(std::move(user)), look_(std::move(look)), next_(loop) {
  user_.set_id(RandomSeed() | 1);
  user_.set_host(HostName());
  user_.set_pid(getpid());
  next_.After(kFirst, scope_.Bind([this] { Report(); }));
}

void UserReporter::Report() {
  next_.After(kUserReportInterval, scope_.Bind([this] { Report(); }));
  look_(user_);
  reported_ = true;
  client_.ReportUser(user_, scope_.Bind([this](const Status& answer) { OnAnswer(answer); }));
}

void UserReporter::SayGoodBye(Callback<void()> done) {
  next_.Cancel();
  if (!std::exchange(reported_, false)) return loop_.Post(scope_.Bind(std::move(done)));
  look_(user_);
  user_.set_gone(true);
  client_.ReportUser(user_,
                     scope_.Bind([done = std::move(done)](const Status&) mutable { done(); }));
}

void UserReporter::OnAnswer(const Status& answer) {
  // A scheduler that is away is told elsewhere, and one that is older than this is no trouble.
  if (answer.ok() || !IsInvalidArgument(answer) || std::exchange(refused_, true)) return;
  kLog.Warn("`tailcast status` does not show this process: ", answer.message());
}

}  // namespace tailcast::cell
