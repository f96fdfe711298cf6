#include "tailcast/writer/copy_messages.h"

#include <utility>

#include "tailcast/base/strong.h"
#include "tailcast/proto/copy.pb.h"
#include "tailcast/rpc/rpc.h"

namespace tailcast::writer {

using stream::Part;

namespace {

constexpr size_t kBytesMax = 1 << 20;

Result<ReaderMessage> FromProto(v1::CopyRequest::Bytes& in) {
  if (in.part() >= stream::kParts) {
    return InvalidArgumentError("bytes.part is " + std::to_string(in.part()));
  }
  if (in.bytes().empty() || in.bytes().size() > kBytesMax) {
    return InvalidArgumentError("bytes.bytes has " + std::to_string(in.bytes().size()) +
                                " bytes; 1 to 1048576 are allowed");
  }
  if (in.position() < 0) {
    return InvalidArgumentError("bytes.position is " + std::to_string(in.position()));
  }
  return ReaderMessage(
      BytesMessage{static_cast<Part>(in.part()), in.position(), std::move(*in.mutable_bytes())});
}

Result<ReaderMessage> FromProto(const v1::CopyRequest::Jump& in, int64_t chunk_size) {
  if (in.part() >= stream::kParts) {
    return InvalidArgumentError("jump.part is " + std::to_string(in.part()));
  }
  if (in.position() < 0 || in.position() % chunk_size != 0) {
    return InvalidArgumentError("jump.position " + std::to_string(in.position()) +
                                " is not the beginning of a chunk");
  }
  return ReaderMessage(JumpMessage{static_cast<Part>(in.part()), in.position()});
}

Result<ReaderMessage> FromProto(const v1::CopyRequest::Heartbeat& in) {
  if (in.as_of_us() <= 0 || in.data_length() < 0 || in.index_length() < 0) {
    return InvalidArgumentError("heartbeat has a negative field");
  }
  return ReaderMessage(HeartbeatMessage{in.as_of_us(), {in.data_length(), in.index_length()}});
}

}  // namespace

Result<ReaderMessage> ParseReaderMessage(const std::string& bytes, int64_t chunk_size) {
  auto request = rpc::Parse<v1::CopyRequest>(bytes);
  if (!request.ok()) return request.status();
  switch (request->kind_case()) {
    case v1::CopyRequest::kBytes:
      return FromProto(*request->mutable_bytes());
    case v1::CopyRequest::kJump:
      return FromProto(request->jump(), chunk_size);
    case v1::CopyRequest::kSeal:
      return ReaderMessage(
          SealMessage{{request->seal().data_length(), request->seal().index_length()}});
    case v1::CopyRequest::kHeartbeat:
      return FromProto(request->heartbeat());
    case v1::CopyRequest::kOpen:
      return InvalidArgumentError("a second `open` on one stream");
    case v1::CopyRequest::KIND_NOT_SET:
      break;
  }
  return InvalidArgumentError("a message of no known kind; is the reader newer?");
}

std::string Serialize(const SendOpened& opened) {
  v1::CopyReply reply;
  auto* out = reply.mutable_opened();
  out->set_data_length(opened.lengths[0]);
  out->set_index_length(opened.lengths[1]);
  out->set_epoch(Raw(opened.epoch));
  out->set_window_bytes(opened.window_bytes);
  return reply.SerializeAsString();
}

std::string Serialize(const SendProgress& progress) {
  v1::CopyReply reply;
  auto* out = reply.mutable_progress();
  out->set_data_length(progress.lengths[0]);
  out->set_index_length(progress.lengths[1]);
  out->set_window_bytes(progress.window_bytes);
  out->set_busy_us(progress.busy.micros());
  return reply.SerializeAsString();
}

std::string Serialize(const SendSuperseded& superseded) {
  v1::CopyReply reply;
  reply.mutable_superseded()->set_term(superseded.term.Pack());
  return reply.SerializeAsString();
}

}  // namespace tailcast::writer
