// How processes and clients of a cell find each other: a cached copy of the registry's view, kept
// fresh by long polls of the scheduler. When the scheduler is away the last view stays in use: data
// flows on without it (paper §3, Fault Tolerance).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/event_loop.h"
#include "tailcast/base/scope.h"
#include "tailcast/base/status.h"
#include "tailcast/cache/client.h"
#include "tailcast/proto/cell.pb.h"
#include "tailcast/proto/users.pb.h"
#include "tailcast/rpc/rpc.h"
#include "tailcast/stream/names.h"

namespace tailcast::cell {

using v1::CellView;

class CellClient {
 public:
  // `scheduler_address` is host:port, `via` an HTTP CONNECT proxy or empty. `connector` outlives
  // the client. All calls and callbacks on `loop`.
  CellClient(EventLoop& loop, rpc::Connector& connector, const std::string& scheduler_address,
             const std::string& via);
  // Of a process of the cell itself.
  CellClient(EventLoop& loop, rpc::Connector& connector, const std::string& scheduler_address);
  CellClient(const CellClient&) = delete;
  CellClient& operator=(const CellClient&) = delete;

  // What the view is for; before Start. Else for writes.
  void UseFor(v1::ViewUse use) { use_ = use; }
  // Fetches the first view, trying again until `timeout`; then keeps it fresh until destruction.
  // Unavailable: nobody answered; the message names the address.
  void Start(Duration timeout, Callback<void(Status)> done);
  // Empty (version 0) until the first view arrived.
  const CellView& view() const { return view_; }
  bool has_view() const { return view_.version() != 0; }
  // Fetches what the view says now of how far caches have come, which is no change that it is told.
  void LookAgain();
  // Called after each change of the view, for as long as the client lives.
  void SetOnChange(Callback<void(const CellView&)> on_change) {
    on_change_.push_back(std::move(on_change));
  }
  // How the contact with the scheduler is: told when nobody has answered for a second, and when
  // somebody does again.
  struct Contact {
    bool lost = false;
    std::string address;  // where nobody answers, or where somebody does
    Duration silence;     // that has lasted so long
    std::string why;      // lost: the last error
  };
  void SetOnContact(Callback<void(const Contact&)> on_contact) {
    on_contact_ = std::move(on_contact);
  }
  // Unavailable from when it was asked in vain until somebody answers.
  Status contact() const;
  // Called whenever the view is asked for in vain; a few times a second.
  void SetOnSilence(Callback<void()> on_silence) { on_silence_.push_back(std::move(on_silence)); }
  // Asked about once a second while the scheduler is lost: where is it by now? The answer comes
  // later, on the loop. An error, or where nobody answers: the old address is tried again.
  using Find = std::function<void(Callback<void(Result<std::string>)> found)>;
  void SetFind(Find find) { find_ = std::move(find); }
  // Where the scheduler is, as far as is known.
  const std::string& address() const { return client_->address(); }
  // The stream's configuration in the view. NotFound names the nearest name.
  Result<v1::StreamConfig> FindStream(const std::string& name) const;

  // Calls of the Cell service; see cell.proto.
  void Register(const v1::ProcessInfo& process, Callback<void(Result<v1::RegisterReply>)> done);
  void NotifyFile(const v1::FileNotice& notice, Callback<void(Result<v1::FileNoticeReply>)> done);
  void CreateStream(const v1::StreamConfig& stream, Callback<void(Result<v1::StreamConfig>)> done);
  void DeleteStream(const stream::StreamId& stream, Callback<void(Status)> done);
  // Elsewhere than in its source, and there if that does not know it any more: it, and what comes
  // of it from now on, is refused, and its files go.
  void ForgetStream(const v1::StreamConfig& stream, Callback<void(Status)> done);
  void SetRetention(const v1::SetRetentionRequest& request,
                    Callback<void(Result<v1::StreamConfig>)> done);
  void TrimStream(const v1::TrimStreamRequest& request,
                  Callback<void(Result<v1::TrimStreamReply>)> done);
  void ChangeRing(const v1::ChangeRingRequest& request,
                  Callback<void(Result<v1::ChangeRingReply>)> done);
  // Calls of the Users service; see users.proto.
  void ReportUser(const v1::User& user, Callback<void(Status)> done);
  void ListUsers(Callback<void(Result<v1::ListUsersReply>)> done);

 private:
  // A callback for the call's bytes that gives `done` the parsed message.
  template <typename Reply>
  Callback<void(Result<std::string>)> Parsing(Callback<void(Result<Reply>)> done);
  void Poll();
  void OnView(Result<std::string> reply);
  void OnSilence(const std::string& why);
  void OnAnswer();
  void MoveTo(const std::string& address);

  EventLoop& loop_;
  rpc::Connector& connector_;
  const std::string first_address_, via_;
  const bool own_cell_ = false;
  v1::ViewUse use_ = v1::VIEW_WRITES;
  std::unique_ptr<rpc::Client> client_;
  std::vector<std::unique_ptr<rpc::Client>> former_;  // calls of which may be under way
  std::vector<Callback<void()>> on_silence_;
  Callback<void(const Contact&)> on_contact_;
  Find find_;
  MonotonicTime silent_since_ = MonotonicTime::Max();  // Max: it answers
  MonotonicTime find_at_;
  bool lost_ = false;  // and that was told
  CellView view_;
  std::vector<Callback<void(const CellView&)>> on_change_;
  Callback<void(Status)> started_;
  MonotonicTime start_deadline_;
  Timer retry_{loop_};
  Scope scope_;
};

// The rings of a view as the cache client takes them.
cache::RingConfig DataRing(const CellView& view);
cache::RingConfig MetadataRing(const CellView& view);

}  // namespace tailcast::cell
