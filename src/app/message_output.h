// Standard output of `tailcast consume`: messages go there, and where they were written to whole is
// kept (output_positions.h), also in a file.
//
// Threads: one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tailcast/app/message_format.h"
#include "tailcast/app/output_positions.h"
#include "tailcast/base/status.h"
#include "tailcast/consumer/consumer.h"
#include "tailcast/stream/framing.h"
#include "tailcast/stream/position.h"

namespace tailcast::app {

class MessageOutput {
 public:
  // Without a format messages are framed. `position_file`: empty: none. `begin`: where shards begin
  // of which that is known before they are located.
  MessageOutput(stream::Framing framing, std::optional<MessageFormat> format,
                std::string position_file, const std::vector<stream::Position>& begin);

  // A message was taken from the consumer; each of a batch before the first Add.
  void OnTaken(const consumer::Consumer& consumer, const consumer::Message& message);
  // InvalidArgument: it can't be shown so.
  Status Add(const consumer::Consumer& consumer, const consumer::Message& message);

  enum class Written : uint8_t {
    kAll,
    kInterrupted,  // nobody reads at the moment, and an interrupt came
    kReaderGone,
  };
  // Writes what was added.
  Result<Written> Flush();

  // Behind what was written (to a pipe: and read from it), of each shard; of one that gave nothing
  // where it begins. Only shards are left out of which that is not known yet.
  std::vector<stream::Position> Positions(const consumer::Consumer& consumer) const;
  // Messages that were framed, and whose headers were left out.
  int64_t without_headers() const { return without_headers_; }
  // Writes the position file if that has changed. A regular file is made durable first: what the
  // positions lie behind survives whatever they survive.
  Status SavePositions(const consumer::Consumer& consumer);

 private:
  const stream::Framing framing_;
  const std::optional<MessageFormat> format_;
  const std::string position_file_;
  const bool regular_;  // standard output is a regular file
  std::map<int32_t, stream::Position> begin_;
  OutputPositions positions_;
  std::string out_;
  bool reader_gone_ = false;
  int64_t without_headers_ = 0;
  std::vector<stream::Position> saved_;
};

}  // namespace tailcast::app
