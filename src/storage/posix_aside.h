// Damaged files: how they are taken aside, and how they are deleted. A file is damaged when its
// first inode does not say whose it is: another program cut it or wrote over it. Internal to the
// driver.
//
// What is taken aside gets further names in the hidden folder `.aside` of its folder, where nobody
// opens it, and is then deleted as any file is: so nothing brings its name back, and its writers
// are fenced. It is there for people until the next deletion in the folder.
//
// Of a damaged file nobody can say which key it has, nor its id: its claim is found as the name of
// the same inode, its segments by their names.
#pragma once

#include <functional>
#include <string>

#include "tailcast/base/status.h"
#include "tailcast/storage/posix_context.h"

namespace tailcast::storage::posix {

// Errors as Store::Quarantine. `folder` and `name` were checked by the caller. `wanted`: asked when
// the file is open; false: nothing is changed, DeadlineExceeded. From there on it is this inode
// that goes; what is kept aside may be of the file that has the name by then, too.
Status Quarantine(const Context& c, const std::string& folder, const std::string& name,
                  const std::function<bool()>& wanted);

// Fences and removes a file whose first inode is damaged. NotFound: it is gone by now, or the name
// is another file's; Unavailable: another process is at it.
Status RemoveDamaged(const Context& c, const std::string& folder, const std::string& name);
// Removes what was taken aside in the folder.
Status EmptyAside(const Context& c, const std::string& folder);

}  // namespace tailcast::storage::posix
