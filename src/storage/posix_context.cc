#include "tailcast/storage/posix_context.h"

#include "tailcast/base/strong.h"
#include "tailcast/storage/posix_reserve.h"

namespace tailcast::storage::posix {

std::string Join(const std::string& folder, std::string_view name) {
  return folder.empty() ? std::string(name) : folder + "/" + std::string(name);
}

Status LostRace(const std::string& what) {
  return AbortedError(what + ": lost " + std::to_string(kAttemptsMax) +
                      " races against other processes; try again");
}

Status FlushFolder(const Context& c, const std::string& folder) {
  return c.durable() ? c.ops->SyncFolder(folder) : OkStatus();
}

Status CheckRoom(const Context& c, const std::string& what) {
  return c.reserve == nullptr ? OkStatus() : c.reserve->MayWrite(what);
}

Status EnsureFolder(const Context& c, const std::string& folder) {
  if (folder.empty()) return OkStatus();
  {
    std::lock_guard lock(c.folders_mutex);
    if (c.durable_folders.contains(folder)) return OkStatus();
  }
  const size_t slash = folder.rfind('/');
  const std::string parent = slash == std::string::npos ? "" : folder.substr(0, slash);
  TAILCAST_RETURN_IF_ERROR(EnsureFolder(c, parent));
  Status made = c.ops->MakeFolder(folder);
  if (!made.ok() && !IsAlreadyExists(made)) return made;
  TAILCAST_RETURN_IF_ERROR(FlushFolder(c, parent));
  std::lock_guard lock(c.folders_mutex);
  c.durable_folders.insert(folder);
  return OkStatus();
}

void ForgetFolders(const Context& c) {
  std::lock_guard lock(c.folders_mutex);
  c.durable_folders.clear();
}

std::string LogWord(CommitWord w) {
  return "\"epoch\":" + std::to_string(Raw(w.epoch)) + ",\"length\":" + std::to_string(w.length);
}
std::string LogRange(int64_t at, int64_t bytes) {
  return "\"at\":" + std::to_string(at) + ",\"bytes\":" + std::to_string(bytes);
}
std::string LogFlag(const char* name, bool value) {
  return "\"" + std::string(name) + (value ? "\":true" : "\":false");
}
void LogStep(StepLog& log, std::string_view step, uint64_t writer, const std::string& fields) {
  std::string more;
  if (writer != 0) {
    AppendStepFields({{"writer", std::string_view(log.process() + std::to_string(writer))}}, &more);
  }
  if (!fields.empty()) more += (more.empty() ? "" : ",") + fields;
  log.WriteAt(log.Stamp(), step, {}, more);
}

}  // namespace tailcast::storage::posix
