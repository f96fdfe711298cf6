// tailcast cache ring|reshard|restart|wait: the ring of a cell's caches, its changes, and restarts
// that lose nothing.
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/app/cell_session.h"
#include "tailcast/app/command.h"
#include "tailcast/app/file_lock.h"
#include "tailcast/base/status.h"
#include "tailcast/base/strong.h"
#include "tailcast/base/time.h"
#include "tailcast/cache/client.h"
#include "tailcast/cell/cell_client.h"
#include "tailcast/memcached/replica_names.h"

namespace tailcast::app {
namespace {

using cache::RingPhase;

struct RingOptions {
  CellOptions cell;
  std::vector<std::string> replicas;
  bool cancel = false, no_wait = false, force = false;
  double timeout_s = 300;
};

const v1::ProcessInfo* FindProcess(const v1::CellView& view, const std::string& name) {
  for (const v1::ProcessInfo& process : view.processes()) {
    if (process.name() == name) return &process;
  }
  return nullptr;
}

// Whom everybody waits for, and why. Empty: the ring does not change, and all of it are whole.
std::vector<std::string> Waiting(const v1::CellView& view) {
  const cache::RingConfig ring = cell::MetadataRing(view);
  const RingPhase phase = PhaseOf(ring.configuration_id);
  std::vector<std::string> waiting;
  int lost = 0;
  for (const cache::Replica& replica : ring.replicas) {
    const v1::ProcessInfo* process = FindProcess(view, replica.name);
    const auto wait = [&](const std::string& why) { waiting.push_back(replica.name + " " + why); };
    if (replica.in_ring && !replica.whole) {
      wait(process == nullptr ? "is not there" : "is not whole");
    } else if (phase == RingPhase::kSettled && process != nullptr && !process->data_copied()) {
      wait("copies chunks");
    } else if (phase == RingPhase::kBoth && replica.in_other) {
      if (process == nullptr) {
        wait("is not there");
      } else if (process->filled_configuration() != Raw(ring.configuration_id)) {
        wait("is being filled");
      } else if (process->data_filled_configuration() != Raw(ring.configuration_id)) {
        wait("copies chunks");
      }
    } else if (phase == RingPhase::kNew && replica.in_other) {
      if (process == nullptr) {
        wait(
            "is not there, and is given up 3.5 s after it was heard last, and after the new ring "
            "was read first");
      } else if (process->sealed_configuration() < Raw(ring.configuration_id)) {
        wait("marks what it has as of the ring before");
      }
    }
    lost += replica.in_ring && !replica.whole ? 1 : 0;
  }
  if (phase == RingPhase::kBoth && lost >= 2) {
    waiting.push_back(
        "nothing can be copied that two replicas had acknowledged; when they are gone "
        "for a minute, the change goes on without them, in a new epoch");
  }
  if (waiting.empty() && phase != RingPhase::kSettled) waiting.push_back("the scheduler goes on");
  return waiting;
}

std::string Joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::vector<std::string> Members(const cache::RingConfig& ring, bool other) {
  std::vector<std::string> names;
  for (const cache::Replica& replica : ring.replicas) {
    if (other ? replica.in_other : replica.in_ring) names.push_back(replica.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string PhaseText(const cache::RingConfig& ring) {
  switch (PhaseOf(ring.configuration_id)) {
    case RingPhase::kSettled:
      return "settled";
    case RingPhase::kBoth:
      return "changes to " + Joined(Members(ring, true)) + " (phase both: these are filled)";
    case RingPhase::kNew:
      return "is read instead of " + Joined(Members(ring, true)) +
             ", which still tell so who reads there (phase new)";
  }
  return "";
}

void ShowRing(const v1::CellView& view) {
  const cache::RingConfig ring = cell::MetadataRing(view);
  std::printf("ring %" PRIu64 " of cell %s: %s\n  %s\n", ReadRing(ring.configuration_id),
              view.cell().c_str(), Joined(Members(ring, false)).c_str(), PhaseText(ring).c_str());
  for (const std::string& wait : Waiting(view)) std::printf("  waits: %s\n", wait.c_str());
  std::vector<std::string> spares;
  for (const v1::ProcessInfo& process : view.processes()) {
    if (process.role() == v1::ROLE_CACHE && ring.Find(process.name()) == nullptr) {
      spares.push_back(process.name());
    }
  }
  if (!spares.empty()) std::printf("  in no ring: %s\n", Joined(spares).c_str());
}

// Follows the ring until `done`, saying what it waits for whenever that changes.
//   DeadlineExceeded: says what was waited for. Cancelled: Ctrl-C.
template <typename Condition>
Status Follow(CellSession& session, MonotonicTime end, Condition done) {
  std::string said;
  const auto is_done = [&] { return done(session.client().view()); };
  while (!session.loop().RunUntil(is_done,
                                  std::min(end, session.loop().Now() + Duration::Millis(100)))) {
    if (Interrupted()) {
      return CancelledError(
          "interrupted; the ring goes on by itself: tailcast cache ring shows it");
    }
    session.client().LookAgain();
    const v1::CellView& view = session.client().view();
    const std::string waits = Joined(Waiting(view));
    if (session.loop().Now() >= end) {
      return DeadlineExceededError(
          "not done within the time of --timeout" + (waits.empty() ? "" : ": " + waits) +
          "; it goes on by itself, and `tailcast cache wait` waits for its end");
    }
    if (waits == said || waits.empty()) continue;
    said = waits;
    std::fprintf(stderr, "tailcast cache: %s\n", waits.c_str());
  }
  return OkStatus();
}

MonotonicTime End(const RingOptions& options, CellSession& session) {
  return session.loop().Now() + Duration::Micros(static_cast<int64_t>(options.timeout_s * 1e6));
}

bool IsSettledAndWhole(const v1::CellView& view) {
  return Raw(cell::MetadataRing(view).configuration_id) != 0 && Waiting(view).empty();
}

// Fails for cells whose ring is not the registry's.
Result<std::unique_ptr<CellSession>> Open(const RingOptions& options) {
  auto session = CellSession::Open(options.cell);
  if (!session.ok()) return session;
  const v1::CellView& view = (*session)->client().view();
  for (const v1::Replica& replica : view.metadata_ring().replicas()) {
    if (!memcached::IsReplicaName(replica.name())) continue;
    return FailedPreconditionError("the caches of cell " + view.cell() +
                                   " are memcached servers; `caches` of the configuration names "
                                   "them");
  }
  return session;
}

int Ring(const RingOptions& options) {
  auto session = Open(options);
  if (!session.ok()) return Fail(session.status());
  ShowRing((*session)->client().view());
  return kExitDone;
}

int Wait(const RingOptions& options) {
  auto session = Open(options);
  if (!session.ok()) return Fail(session.status());
  CatchInterrupts();
  const Status waited = Follow(**session, End(options, **session), IsSettledAndWhole);
  return waited.ok() ? kExitDone : Fail(waited);
}

int Reshard(const RingOptions& options) {
  if (options.cancel != options.replicas.empty()) {
    return Fail(InvalidArgumentError(options.cancel
                                         ? "--cancel goes without names"
                                         : "name the replicas that the ring shall have, or give "
                                           "--cancel; tailcast cache ring shows those it has"));
  }
  auto session = Open(options);
  if (!session.ok()) return Fail(session.status());
  const size_t size = Members(cell::MetadataRing((*session)->client().view()), false).size();
  if (!options.cancel && !options.force && options.replicas.size() < std::min<size_t>(size, 3)) {
    return Fail(InvalidArgumentError(
        "a ring of " + std::to_string(options.replicas.size()) +
        " keeps fewer than three copies of each value; name all replicas that the ring shall have, "
        "or give --force"));
  }
  CatchInterrupts();
  v1::ChangeRingRequest request;
  request.set_cancel(options.cancel);
  for (const std::string& name : options.replicas) request.add_replicas(name);
  const auto reply = (*session)->Call<Result<v1::ChangeRingReply>>(
      [&](auto done) { (*session)->client().ChangeRing(request, std::move(done)); },
      "`tailcast cache ring` shows the ring");
  if (!reply.ok()) return Fail(reply.status());
  const auto now = [&] { return cell::MetadataRing((*session)->client().view()); };
  if (!options.no_wait) {
    const uint64_t begun = reply->configuration_id();
    const Status done =
        Follow(**session, End(options, **session), [begun](const v1::CellView& view) {
          return view.metadata_ring().configuration_id() >= begun && IsSettledAndWhole(view);
        });
    if (!done.ok()) return Fail(done);
    std::vector<std::string> wanted = options.replicas;
    std::sort(wanted.begin(), wanted.end());
    if (!options.cancel && Members(now(), false) != wanted) {
      return Fail(
          AbortedError("the change was taken back; the ring is " + Joined(Members(now(), false))));
    }
  }
  ShowRing((*session)->client().view());
  return kExitDone;
}

Result<const v1::ProcessInfo*> FindCache(CellSession& session, const std::string& name) {
  const v1::ProcessInfo* process = FindProcess(session.client().view(), name);
  if (process != nullptr && process->role() == v1::ROLE_CACHE) return process;
  return NotFoundError("no cache process '" + name + "' is there");
}

// One replica at a time; the next one when the one before is whole.
int Restart(const RingOptions& options) {
  if (options.cell.dir.empty()) {
    return Fail(InvalidArgumentError(
        "restart is for a deployment of `tailcast up` (--dir): it ends processes of this host, and "
        "`up` starts them again. Elsewhere restart them one after the other and call `tailcast "
        "cache wait` before each next one"));
  }
  auto session = Open(options);
  if (!session.ok()) return Fail(session.status());
  const auto lock =
      FileLock::Take(options.cell.dir + "/cache-restart.lock", [](const std::string&) {
        return "another `tailcast cache restart` of this deployment is under way, and two at once "
               "would end too many replicas; wait until it has returned";
      });
  if (!lock.ok()) return Fail(lock.status());
  CatchInterrupts();
  CellSession& cell = **session;
  for (const std::string& name : options.replicas) {
    if (const auto process = FindCache(cell, name); !process.ok()) return Fail(process.status());
  }
  if (Status settled = Follow(cell, End(options, cell), IsSettledAndWhole); !settled.ok()) {
    return Fail(settled);
  }
  const uint64_t epoch = cell.client().view().metadata_ring().epoch();
  const std::vector<std::string> names =
      options.replicas.empty() ? Members(cell::MetadataRing(cell.client().view()), false)
                               : options.replicas;
  const std::vector<std::string> members = Members(cell::MetadataRing(cell.client().view()), false);
  const bool alone =
      members.size() == 1 && std::find(names.begin(), names.end(), members.front()) != names.end();
  if (alone && !options.force) {
    return Fail(FailedPreconditionError(
        members.front() +
        " is the only replica: what it holds is gone with it, and consumers read from disk until "
        "it is filled anew; give --force to restart it all the same, or `tailcast cache reshard` "
        "to three replicas first"));
  }
  for (const std::string& name : names) {
    Status status = Follow(cell, End(options, cell), IsSettledAndWhole);
    if (!status.ok()) return Fail(status);
    const auto process = FindCache(cell, name);
    if (!process.ok()) return Fail(process.status());
    const uint64_t before = (*process)->incarnation();
    const auto pid = static_cast<pid_t>((*process)->pid());
    const MonotonicTime began = cell.loop().Now();
    if (pid <= 0 || kill(pid, SIGTERM) != 0) {
      return Fail(FailedPreconditionError("can't end " + name + ", process " + std::to_string(pid) +
                                          ": " + std::strerror(errno)));
    }
    status = Follow(cell, End(options, cell), [&](const v1::CellView& view) {
      const v1::ProcessInfo* now = FindProcess(view, name);
      return now != nullptr && now->incarnation() != before && IsSettledAndWhole(view);
    });
    if (!status.ok()) return Fail(status);
    const bool member = std::find(members.begin(), members.end(), name) != members.end();
    std::printf("%s: %s after %.1f s\n", name.c_str(),
                member ? "whole again" : "there again, in no ring,",
                (cell.loop().Now() - began).seconds());
    std::fflush(stdout);
  }
  if (!alone && cell.client().view().metadata_ring().epoch() != epoch) {
    return Fail(DataLossError("the cache epoch rose meanwhile: other replicas restarted, too"));
  }
  return kExitDone;
}

}  // namespace

void AddCacheRing(CLI::App* cache, Action& action) {
  const auto add = [&](const char* name, const char* about, int (*run)(const RingOptions&)) {
    CLI::App* command = cache->add_subcommand(name, about);
    auto options = std::make_shared<RingOptions>();
    options->cell.Add(command, true);
    command->callback(
        [&action, options, run] { action = [options, run] { return run(*options); }; });
    return std::pair(command, options);
  };
  const auto timeout = [](CLI::App* command, RingOptions& options) {
    command->add_option("--timeout", options.timeout_s, "Seconds to wait at most, for each step")
        ->check(AboveZero())
        ->capture_default_str();
  };

  add("ring", "Show the ring, how far a change of it is, and what it waits for", Ring);

  const auto [wait, wait_options] =
      add("wait", "Wait until all replicas are whole and the ring does not change", Wait);
  timeout(wait, *wait_options);

  const auto [reshard, reshard_options] =
      add("reshard", "Change the ring to other replicas while it is used", Reshard);
  reshard->add_option("REPLICA", reshard_options->replicas,
                      "All replicas that the ring shall have, by their names");
  reshard->add_flag("--cancel", reshard_options->cancel,
                    "Take a change back, as long as the old ring is read (phase both)");
  reshard->add_flag("--force", reshard_options->force, "Even to fewer than three replicas");
  reshard->add_flag("--no-wait", reshard_options->no_wait, "Return when it has begun");
  timeout(reshard, *reshard_options);
  reshard->footer(
      "Start the processes of replicas that come before this; end those of replicas that leave\n"
      "only when it has returned. It goes on by itself if this command is ended.");

  const auto [restart, restart_options] =
      add("restart", "Restart the replicas one after the other, each when the one before is whole",
          Restart);
  restart->add_option("REPLICA", restart_options->replicas, "Only these; default: the ring's");
  restart->add_flag("--force", restart_options->force, "Also a ring's only replica");
  timeout(restart, *restart_options);
}

}  // namespace tailcast::app
