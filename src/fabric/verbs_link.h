// One end of a message channel over a queue pair: carries out what VerbsMessagesCore decides. The
// loop sends and takes; another thread may close it meanwhile.
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

namespace tailcast::fabric {

class VerbsLink {
 public:
  // Packets that are posted and not sent yet.
  static constexpr uint32_t kSlots = 16;
  // Registered memory of one end.
  static constexpr uint64_t Bytes(VerbsMessagesCore::Side side) {
    const bool server = side == VerbsMessagesCore::Side::kServer;
    return uint64_t{(server ? kVerbsServerReceives : kVerbsClientReceives) + kSlots} *
           kVerbsPacketBytes;
  }

  // Makes the queue pair of `id`, with its buffers posted: connect after that. `pd` and `events`
  // outlive it; of `events` come events whose context is `context`.
  //   Unavailable: the device has no more of something.
  static Result<std::shared_ptr<VerbsLink>> Make(VerbsMessagesCore::Side side, rdma_cm_id* id,
                                                 ibv_pd* pd, ibv_comp_channel* events,
                                                 void* context);
  ~VerbsLink() = default;  // its queue pair is gone
  VerbsLink(const VerbsLink&) = delete;
  VerbsLink& operator=(const VerbsLink&) = delete;

  // How a queue pair of a channel is connected, on either end: nobody READs, and no device repeats
  // what found no buffer.
  static rdma_conn_param ConnectionParameters();

  // Any thread. Nothing is posted or polled any more; destroy the queue pair after it.
  void Close();

  // The rest may be called on any thread, but messages are taken by one.
  static constexpr size_t kTakenMost = kMessageWindow;

  // Sends a message, now or when there is room.
  void Send(std::span<const std::string_view> parts);
  // Takes what has arrived, of whole messages kTakenMost or a few more, and sends what there is
  // room for again. `more`: it stopped before it had taken all. "" or what is wrong; "" when it was
  // closed.
  std::string Take(std::vector<std::string>* messages, bool* more);
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
  explicit VerbsLink(VerbsMessagesCore::Side side) : core_(side, kSlots) {}
  Status Open(VerbsMessagesCore::Side side, rdma_cm_id* id, ibv_pd* pd, ibv_comp_channel* events,
              void* context);
  // Each under mutex_.
  bool PostReceive(uint32_t slot);
  bool Post();  // false: nothing
  void Flush();
  void TakeSent();
  // Looks at what has arrived, of whole messages about `most`. True: it stopped before it had
  // looked at all.
  bool TakeArrived(size_t most);
  void Broke(std::string why);

  mutable std::mutex mutex_;
  // All is guarded by it, or constant from Make on.
  bool closed_ = false;
  std::string wrong_;
  bool broke_ = false;
  uint32_t receives_ = 0;
  int solicited_only_ = 0;
  Mapping memory_;  // receive buffers, then slots
  VerbsOwned<ibv_mr> key_;
  VerbsOwned<ibv_cq> send_cq_, receive_cq_;
  ibv_qp* qp_ = nullptr;
  VerbsMessagesCore core_;
  MonotonicTime begun_ = MonotonicTime::Max();
  MonotonicTime sending_ = MonotonicTime::Max();
};

}  // namespace tailcast::fabric
