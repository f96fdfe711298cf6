// Names of files: who has a key, who has a name, and how both go. Internal to the driver.
//
// A key belongs to the inode that is linked to `.claim-<key>`; of all creators one link wins. The
// name comes after it, and only once the claim is durable:
//
//   nameless inode ---link claim---> claimed ---flush folder---> claimed durably
//       | AlreadyExists                 |                            | link name, flush folder
//       v                               | power loss, creator dead   v
//   help the winner, report its name    +--> gone, or whoever     created
//                                            comes with the key
//                                            goes on from here
//
// Deletion is the tombstone, durable before anything goes: what a power loss or a helper brings
// back is deleted still, and whoever meets it finishes the work. Segments and claim go before the
// name, by which a deletion that died is found and finished: nothing is left that no listing shows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/storage/posix_appender.h"
#include "tailcast/storage/posix_context.h"
#include "tailcast/storage/posix_inodes.h"

namespace tailcast::storage::posix {

// Errors as documented for Store. `folder`, `name` and `key` were checked by the caller.
Result<std::unique_ptr<Appender>> CreateExclusive(const Context& c, const std::string& folder,
                                                  const std::string& name, const std::string& key);
Status Delete(const Context& c, const std::string& folder, const std::string& name);
// As Store::Identify and Store::DeleteExactly.
Result<std::string> Identify(const Context& c, const std::string& folder, const std::string& name);
Status DeleteExactly(const Context& c, const std::string& folder, const std::string& name,
                     const std::string& id);
// The same of a file that is open.
Status DeleteFile(const Context& c, const FirstInode& file);
Result<std::vector<std::string>> List(const Context& c, const std::string& folder);
Result<std::vector<std::string>> ListFolders(const Context& c, const std::string& folder);

// The file of this name, open. NotFound, also for one that is deleted, which is finished if
// `writable`; DataLoss.
Result<FirstInode> OpenNamed(const Context& c, const std::string& folder, const std::string& name,
                             bool writable);
// Removes what is left of a file whose tombstone is set. Unavailable: another process is at it.
Status FinishDelete(const Context& c, const FirstInode& file);

}  // namespace tailcast::storage::posix
