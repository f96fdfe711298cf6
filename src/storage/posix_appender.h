// The right to append to a file, and the steps of an append. Internal to the driver.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"
#include "tailcast/storage/posix_context.h"
#include "tailcast/storage/posix_format.h"
#include "tailcast/storage/posix_inodes.h"
#include "tailcast/storage/store.h"

namespace tailcast::storage::posix {

// An append of epoch e at length L goes through these states; between any two the process may be
// stopped for as long as you like, or die, or the power may go. Arrows are the actions of
// tla/Fencing.tla, states its wr[w].pc.
//
//           AppendWrite             AppendSync             AppendCommit: swapped
//   kReady ------------> kWritten ------------> kFlushed -----------------------> kReady: applied
//     |  |                  |                      |
//     |  | error,           | error                | AppendCommit: the swap failed
//     |  | too long         v                      v        Durability::kPageCache
//     |  +----> kDead: unknown                  kFenced ------------------------> kDead: fenced
//     |                        ^                   |  |
//     | AppendRefused          |       error       |  | AppendRevoke
//     v                        +-------------------+  v
//   kDead: fenced              |                kRevoked -----------------------> kDead: fenced
//                              |       error       |        AppendRevokeSync
//                              +-------------------+
//
//              on disk for certain          if the process dies     if the power goes
//   kReady     all that is committed        length L                length L
//   kWritten   the same: the slot of L is   length L: the word      L; or L + n if bytes and the
//              not the one that is written  still says so           new slot both reached the disk
//   kFlushed   bytes and slot of L + n      length L, or what who   L + n: the slot says so; or what
//                                           fenced us goes on with  a later, durable segment says
//   kFenced    the same                     the fencer's bytes      the fencer's; our n, which were
//                                                                   never acknowledged, if its
//                                                                   segment is not durable yet
//   kRevoked   the same, or without slot    the fencer's bytes      as kFenced, or without our n
//
// Only a power loss looks at slots, and only at those of the newest segment. So an append may be
// reported as fenced, which says that its bytes will never be seen, when its slot is gone durably.
enum class AppenderState : uint8_t { kReady, kWritten, kFlushed, kFenced, kRevoked, kDead };

// One thread at a time.
class Appender {
 public:
  // `segment`: the inode of `word`'s epoch, where nobody has appended yet. `writer`: this handle in
  // the log of steps.
  Appender(const Context* context, uint64_t writer, FirstInode file, Segment segment,
           CommitWord word);
  ~Appender();

  // As AppendFile::AppendAt, offsets checked by the caller: appends at committed_length(). After
  // kFenced or kUnknown only the destructor may be called.
  AppendResult Append(std::string_view bytes);

  int64_t committed_length() const { return word_.length; }
  Epoch epoch() const { return word_.epoch; }
  const std::string& name() const { return file_.name; }
  AppenderState state() const { return state_; }

 private:
  // The steps, one function for each action. Status: of the system calls.
  Status Write(std::string_view bytes, CommitWord next, int64_t slot_offset);
  Status Sync();
  bool Commit(CommitWord next);
  Status Revoke(int64_t slot_offset);
  Status RevokeSync();

  // Checks that the state is `from`: the order of the steps is the proof.
  void Move(AppenderState from, AppenderState to);
  // So is the way into kDead.
  AppendResult Die(AppendOutcome outcome, Status error);
  // Fenced after the flush: the slot is on disk and has to go.
  bool MustRevoke() const;
  // Looks at the word for who it was.
  Status FencedError() const;

  const Context* const context_;
  const uint64_t writer_;
  const FirstInode file_;
  const Segment segment_;
  AppenderState state_ = AppenderState::kReady;
  CommitWord word_;
  int next_slot_ = 0;
};

}  // namespace tailcast::storage::posix
