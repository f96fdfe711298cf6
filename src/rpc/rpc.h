// Two-sided calls and streams between processes, in a form that the deterministic world can stand
// in for. The real driver is gRPC over generic methods (grpc_rpc.h), the only place where gRPC's
// headers are included; messages are protobufs of ../proto, serialised by the caller, so any gRPC
// client of those services can speak to us.
//
// Threads: a Client, Server and Stream live on one loop; callbacks run there, never inside the
// call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tailcast/base/callback.h"
#include "tailcast/base/event_loop.h"
#include "tailcast/base/status.h"

namespace tailcast::rpc {

// One end of a bidirectional stream of messages, in order.
class Stream {
 public:
  // Destroying an open stream cancels it: the peer sees Cancelled.
  virtual ~Stream() = default;

  // Queues a message. Returns false when the stream is closed (the message is dropped). Senders
  // keep `queued_bytes` below their window: nothing else bounds the queue.
  virtual bool Send(std::string message) = 0;
  // Bytes given to Send that the transport has not taken yet.
  virtual size_t queued_bytes() const = 0;
  // Ends the stream. Server: with this status after what was queued. Client: Ok half-closes (the
  // server sees the end after all messages), an error cancels.
  virtual void Close(Status status) = 0;

  struct Callbacks {
    Callback<void(std::string)> on_message;  // many times
    Callback<void()> on_drained;             // many times: queued_bytes fell to 0; may be empty
    // Once, after which the stream is dead. Client side: the server's status. Server side: Ok when
    // the client half-closed (which the server answers with Ok by itself), Cancelled when the
    // client or its connection is gone; a broken connection may also look like a half-close, so a
    // protocol that must know the difference says its end in a message.
    Callback<void(Status)> on_closed;
  };
  // Must be called in the same turn in which the stream was obtained; messages wait until then.
  virtual void SetCallbacks(Callbacks callbacks) = 0;
};

// Calls to one address. Connects when first used, and again after failures with back-off.
class Client {
 public:
  virtual ~Client() = default;
  // `method` as in "/tailcast.v1.Cache/Mutate". Errors: the server's status, or Unavailable (no
  // connection, or the server ends) / DeadlineExceeded / Cancelled (the connector goes) of the
  // transport. After those the outcome is unknown.
  virtual void Call(std::string_view method, std::string request, Duration timeout,
                    Callback<void(Result<std::string>)> done) = 0;
  // Opens a stream; usable at once, messages are queued while it connects, so that opening costs no
  // round trip of its own. Failure to connect arrives by on_closed(Unavailable).
  virtual std::unique_ptr<Stream> Open(std::string_view method) = 0;
  virtual const std::string& address() const = 0;
};

// Makes clients. One per process; clients of one address share a connection.
class Connector {
 public:
  virtual ~Connector() = default;
  // `address` is "host:port". `via` is empty or "host:port" of an HTTP CONNECT proxy on the way
  // (the demo's links are delayed by one).
  virtual std::unique_ptr<Client> MakeClient(const std::string& address,
                                             const std::string& via) = 0;
  // The same, to a process near by that answers little: nothing is spent on finding out how much
  // may be under way at once.
  virtual std::unique_ptr<Client> MakeControlClient(const std::string& address,
                                                    const std::string& via) {
    return MakeClient(address, via);
  }
};

using Responder = Callback<void(Result<std::string>)>;  // call exactly once, on the loop

class Server {
 public:
  virtual ~Server() = default;
  // Handlers run on the server's loop. Register before Start.
  virtual void Handle(std::string_view method, Callback<void(std::string request, Responder)>) = 0;
  virtual void HandleStream(std::string_view method, Callback<void(std::unique_ptr<Stream>)>) = 0;
  // Listens at "host:port" (port 0: any). Returns the address with the real port. Once.
  //   FailedPrecondition: the port is in use. InvalidArgument: not an address.
  virtual Result<std::string> Start(const std::string& listen_address) = 0;
};

// Serialises a protobuf message / parses one. A message that does not parse is InvalidArgument.
template <typename Message>
Result<Message> Parse(const std::string& bytes) {
  Message message;
  if (!message.ParseFromString(bytes)) {
    return InvalidArgumentError("not a valid " + message.GetTypeName() + " (" +
                                std::to_string(bytes.size()) + " bytes)");
  }
  return message;
}

}  // namespace tailcast::rpc
