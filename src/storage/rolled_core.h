// What the cores of the rolled driver share. A core is one operation on objects, without I/O: it
// says which request comes next, is told the reply, and at last says the result. RolledStore sends
// the requests, one at a time for each core, or two at once. Comments name actions of spec
// FencingRolled.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "tailcast/base/status.h"
#include "tailcast/storage/object_store.h"
#include "tailcast/storage/rolled_format.h"

namespace tailcast::storage::rolled {

// What a core wants: a request, to whose reply it is then told, or it is done with an R.
template <typename R>
using Next = std::variant<ObjectRequest, R>;

// Two requests that are sent at once, and land in any order. Then a core is told both replies.
struct Two {
  ObjectRequest first;
  ObjectRequest second;
};

// How often a lost race is run again; then Aborted.
inline constexpr int kRacesMax = 100;

// For people, and with the code of what to do: Unavailable or as the store says for kFailed and
// kUnknown (DeadlineExceeded if nothing was answered), NotFound, AlreadyExists, Aborted.
Status StatusOf(const ObjectReply& reply, const std::string& what);

// An absent object may mean that there is no such file, or that there is no such pool any more. The
// root folder is there as long as the pool is: asking for it tells the two apart.
ObjectRequest AskForRoot();
// `absent`, if the root is there; else what became of it.
Status ResultOfAbsence(const ObjectReply& root, Status absent);

// Makes the root folder, or finds what made it. FailedPrecondition: it is of another version.
class FormatCore {
 public:
  using Outcome = Status;
  Next<Status> Begin() { return AskForRoot(); }
  Next<Status> OnReply(const ObjectReply& reply);

 private:
  bool made_ = false;
};

ObjectRequest LookAtKeys(std::string object, std::vector<std::string> keys);
ObjectRequest LookAtManifest(const std::string& file_id);
ObjectRequest LookAtState(const std::string& file_id, size_t number);
ObjectRequest Remove(std::string object);
// An append object in its first state.
ObjectChange NewAppendObject(const std::string& file_id, size_t number, Epoch epoch);
// A change that only the reader of this manifest may make.
ObjectChange ChangeOfManifest(const std::string& file_id, const Manifest& as_read);

}  // namespace tailcast::storage::rolled
