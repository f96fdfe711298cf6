#include "tailcast/rpc/grpc_queue.h"

#include <absl/synchronization/mutex.h>
#include <grpc/support/log.h>
#include <pthread.h>

#include <vector>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#include "tailcast/base/log.h"
#include "tailcast/rpc/plain_reason.h"

namespace tailcast::rpc::internal {

#if defined(__SANITIZE_THREAD__)
void Give(void* object) { __tsan_release(object); }
void Got(void* object) { __tsan_acquire(object); }
#else
void Give(void*) {}
void Got(void*) {}
#endif

ByteBuffer ToBuffer(std::string message) {
  auto* owned = new std::string(std::move(message));
  Give(owned);
  const auto drop = [](void* string) {
    Got(string);
    delete static_cast<std::string*>(string);
  };
  grpc::Slice slice(owned->data(), owned->size(), drop, owned);
  return ByteBuffer(&slice, 1);
}

std::string FromBuffer(const ByteBuffer& buffer) {
  std::string message;
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return message;
  message.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    message.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return message;
}

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message());
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  StatusCode code = static_cast<StatusCode>(status.error_code());
  if (StatusCodeName(code) == "Unknown") code = StatusCode::kInternal;
  return Status(code, PlainReason(status.error_message()));
}

Queue::Queue()
    : thread_([this] {
        pthread_setname_np(pthread_self(), "rpc");
        void* tag;
        bool ok;
        while (queue_->Next(&tag, &ok)) Tag::Complete(tag, ok);
      }) {}

Queue::~Queue() {
  queue_->Shutdown();
  thread_.join();
}

// gRPC's own lines go to our log, at debug: what matters comes to us as a
// Status. And its locks, Abseil's, shall not look for deadlocks, as those of a library built
// without NDEBUG (Debian's) do with a graph under one lock of the whole process.
void PrepareGrpc() {
  static const bool done = [] {
    gpr_set_log_function([](gpr_log_func_args* args) {
      static const Logger log("grpc");
      log.Debug(args->file, ":", args->line, ": ", args->message);
    });
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    return true;
  }();
  (void)done;
}

}  // namespace tailcast::rpc::internal
