// One end of a message channel over a queue pair: carries out what VerbsMessagesCore decides. The
// loop sends and takes; another thread may close it meanwhile.
//
// Packets arrive in buffers of its own, or of a pool that all channels of a server share. There who
// sends what he may not, and more than he has credits for in the first place, loses his queue pair
// as soon as it is seen, whichever thread sees it: he would take the buffers of others.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/fabric/region_memory.h"
#include "tailcast/fabric/verbs_device.h"
#include "tailcast/fabric/verbs_messages_core.h"
#include "tailcast/fabric/verbs_pool.h"

namespace tailcast::fabric {

class VerbsLink {
 public:
  // Packets that are posted and not sent yet.
  static constexpr uint32_t kSlots = 16;
  // Makes the queue pair of `id`, with its buffers posted: connect after that. `pd` and `events`
  // outlive it, and `pool` its queue pair; of `events` come events whose context is `context`.
  // `pool`: a server's, or null: it has buffers of its own.
  //   Unavailable: the device has no more of something. ResourceExhausted: no more memory can be
  //   registered.
  static Result<std::shared_ptr<VerbsLink>> Make(VerbsMessagesCore::Side side, rdma_cm_id* id,
                                                 ibv_pd* pd, ibv_comp_channel* events,
                                                 void* context, VerbsPool* pool = nullptr);
  ~VerbsLink();  // its queue pair is gone
  VerbsLink(const VerbsLink&) = delete;
  VerbsLink& operator=(const VerbsLink&) = delete;

  // How a queue pair of a channel is connected, on either end: nobody READs. The other end repeats
  // what found no buffer for as long as it takes if this one's are shared, else never.
  rdma_conn_param ConnectionParameters() const;
  // After it was accepted: how soon the other end repeats it. False: it broke.
  bool SetRepeats();

  // Any thread. Nothing is posted or polled any more; destroy the queue pair after it.
  void Close();
  // After its queue pair was destroyed: the pool gets back what it had.
  void LetGo();

  // The rest may be called on any thread, but messages are taken by one.
  static constexpr size_t kTakenMost = kMessageWindow;

  // Sends a message, now or when there is room.
  void Send(std::span<const std::string_view> parts);
  // Takes what has arrived, of whole messages kTakenMost or a few more, and sends what there is
  // room for again. `more`: it stopped before it had taken all. "" or what is wrong; "" when it was
  // closed.
  std::string Take(std::vector<std::string>* messages, bool* more);
  // Looks at what has arrived, which Take takes: so buffers of the pool are posted again, whatever
  // the loop does. "" or what is wrong.
  std::string Look();
  // From now on the next message makes an event, which what came before does not: look once more.
  void Arm();
  // What is wrong is the connection or the device, not what the other end sent.
  bool broke() const;
  // Messages that have not gone out.
  size_t queued() const;
  // Since when a message has begun and not ended, or something that was sent has not arrived; Max:
  // neither, or what is wrong is for Take to say; long ago: the queue pair broke. What has arrived
  // and nobody took is looked at, too.
  MonotonicTime stuck_since();

 private:
  VerbsLink(VerbsMessagesCore::Side side, VerbsPool* pool)
      : side_(side), pool_(pool), core_(side, kSlots) {}
  Status Open(rdma_cm_id* id, ibv_pd* pd, ibv_comp_channel* events, void* context);
  // Each under mutex_.
  bool PostReceive(uint64_t slot);
  const char* Arrived(uint64_t slot);
  void OnArrived(const ibv_wc& done);
  // Of one with a pool: nothing arrives any more, and what has is given back.
  void Stop();
  void GiveBack();
  bool Post();  // false: nothing
  void Flush();
  void TakeSent();
  // Looks at what has arrived, of whole messages about `most`. True: it stopped before it had
  // looked at all.
  bool TakeArrived(size_t most);
  void Broke(std::string why);

  const VerbsMessagesCore::Side side_;
  mutable std::mutex mutex_;
  // All is guarded by it, or constant from Make on.
  VerbsPool* pool_;  // null: its buffers are its own
  bool stopped_ = false;
  bool closed_ = false;
  std::string wrong_;
  bool broke_ = false;
  uint32_t receives_ = 0;    // buffers of its own
  int64_t shown_bytes_ = 0;  // in LockedBytes
  Mapping memory_;           // receive buffers, then slots
  VerbsOwned<ibv_mr> key_;
  VerbsOwned<ibv_cq> send_cq_, receive_cq_;
  ibv_qp* qp_ = nullptr;
  VerbsMessagesCore core_;
  MonotonicTime begun_ = MonotonicTime::Max();
  MonotonicTime sending_ = MonotonicTime::Max();
};

}  // namespace tailcast::fabric
