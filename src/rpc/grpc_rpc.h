// The rpc port over gRPC's completion queues with generic methods. gRPC's headers stay in
// grpc_queue.h and beside it.
//
// Handlers and completions run on the loop that is given; one thread, of the connector's or of the
// server's or of both, only moves bytes between sockets and the loop's mailbox. Reading from a
// stream stops while more than kStreamInboxBytesMax of its messages wait in the loop's mailbox, so
// that a slow loop pushes back on the sender.
#pragma once

#include <memory>
#include <string>

#include "tailcast/rpc/rpc.h"

namespace tailcast::rpc {

inline constexpr size_t kMessageBytesMax = 64u << 20;
inline constexpr size_t kStreamInboxBytesMax = 4u << 20;
// Of a server: calls that came in, and bytes of the requests that were read, that wait for the
// loop. Further ones are refused with ResourceExhausted.
inline constexpr int64_t kWaitingCallsMax = 20000;
inline constexpr int64_t kWaitingBytesMax = int64_t{256} << 20;

// The loop outlives the connector, its clients and their streams. Destroying the connector cancels
// the calls and streams that are left and waits until gRPC's threads have let go of the loop; what
// they post then is run by the loop if it is turned again.
std::unique_ptr<Connector> MakeGrpcConnector(EventLoop& loop);
// Destroying the server ends open calls with Unavailable, streams with Cancelled, and waits until
// its connections have closed; 1 s, if somebody at the other end of one doesn't run, before it
// closes them itself. The loop outlives it. `control`: it is sent little, from near by, as
// MakeControlClient is answered.
std::unique_ptr<Server> MakeGrpcServer(EventLoop& loop, bool control = false);
// A connector on the loop and the thread of `server`, one of MakeGrpcServer, for a process that has
// both: each call costs it fewer changes of thread. Either may go first.
std::unique_ptr<Connector> MakeGrpcConnectorBeside(Server& server);

}  // namespace tailcast::rpc
