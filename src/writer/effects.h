// What the core of an operation wants done. A core appends effects to the list that comes with each
// input; the driver (operation_driver.h) carries them out in this order and gives the answers back
// as inputs. Internal to the module.
//
//   effect             is carried out on         and answered by
//   SendOpened ...     the stream to the reader
//   CloseStream        the stream, once          OnReaderGone, which an ended operation ignores
//   PublishMetadata    the metadata cache        OnPublished
//   ReadMetadata       the metadata cache        OnMetadata
//   ReadLock           the metadata cache        OnWinner
//   WriteLock          the metadata cache        nothing: a lost write shows when the lock is read
//   OpenFile           the primary layer         OnFileOpened
//   SetAside           the primary layer         OnSetAside
//   AppendToFile       the primary layer         OnAppended
//   WriteChunks        the data cache            OnChunksWritten
//   AskFloor           listing, or what is known OnFloor
//   NotifyScheduler    the cell's scheduler      nothing: it is told until it has answered
//   DoWorkLater        the loop                  DoWork, once for all that asked in a turn
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/storage/store.h"
#include "tailcast/stream/lock.h"
#include "tailcast/stream/metadata.h"
#include "tailcast/stream/names.h"
#include "tailcast/stream/term.h"

namespace tailcast::writer {

// Bytes of data and of index.
using Lengths = std::array<int64_t, stream::kParts>;
using Seal = std::optional<Lengths>;

enum class EndCause : uint8_t {
  kDone,
  kReaderGone,
  kSuperseded,     // by the lock or by a fence
  kRefused,        // below the retention floor
  kRejectedInput,  // what the reader sent is wrong
  kLayerFailed,    // what is there contradicts it, or its outcome is unknown
};

struct SendOpened {
  Lengths lengths = {};  // what is downstream already
  storage::Epoch epoch = storage::Epoch::kNone;
  int64_t window_bytes = 0;  // of each part
};
struct SendProgress {
  Lengths lengths = {};
  int64_t window_bytes = 0;  // of each part, from here on
  Duration busy;             // for so long, in all, the layer had something to write
};
struct SendSuperseded {
  stream::Term term;  // of the greater operation; no term if it was not seen
};
struct CloseStream {
  Status status;
  EndCause cause = EndCause::kDone;
};
struct PublishMetadata {
  stream::PairMetadata metadata;
};
struct ReadMetadata {};
struct ReadLock {};
struct WriteLock {
  stream::LockValue value;
};
struct OpenFile {
  stream::Part part = stream::Part::kData;
  // Exclusively; else what is there, which has to be whole, by fencing whoever had it. DataLoss: it
  // is not.
  bool create = false;
};
struct SetAside {
  stream::Part part = stream::Part::kData;
  Status why;
};
struct AppendToFile {
  stream::Part part = stream::Part::kData;
  int64_t offset = 0;
  std::string bytes;
};
// The beginning of a chunk.
struct ChunkValue {
  stream::Part part = stream::Part::kData;
  int64_t chunk = 0;
  std::string value;
};
struct WriteChunks {
  uint64_t batch = 0;
  std::vector<ChunkValue> chunks;
};
struct AskFloor {
  bool look = false;  // at the folder, whatever is known
};
struct NotifyScheduler {
  Seal seal;
};
struct DoWorkLater {};

using Effect = std::variant<SendOpened, SendProgress, SendSuperseded, CloseStream, PublishMetadata,
                            ReadMetadata, ReadLock, WriteLock, OpenFile, SetAside, AppendToFile,
                            WriteChunks, AskFloor, NotifyScheduler, DoWorkLater>;
using Effects = std::vector<Effect>;

}  // namespace tailcast::writer
