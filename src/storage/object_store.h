// What the rolled driver (rolled_store.h) asks of an object store: small objects with attributes
// and sorted keys, each changed or looked at in one atomic step; nothing spans two objects. That is
// Ceph's RADOS (ceph_objects.h), and the fake that loses answers and repeats requests
// (fake_objects.h).
//
// Threads: calls on the loop that it was made with; callbacks as with Store: on that loop, once,
// never inside the call. Each request is answered at its deadline at the latest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tailcast/base/callback.h"
#include "tailcast/base/status.h"
#include "tailcast/base/time.h"

namespace tailcast::storage {

enum class ObjectOutcome : uint8_t {
  kDone,     // a change is durable; what was looked at is in the reply
  kAbsent,   // the object is not there, or the whole pool is gone; nothing was changed
  kExists,   // ObjectChange::create: the object is there already; nothing was changed
  kRefused,  // a guard did not hold; nothing was changed
  kFailed,   // the store refused (full, no permission): done by an earlier copy of it, or not
  kUnknown,  // no answer in time: done, not done, or done later
};

// A change of one object: guards first, then all of what follows them, or nothing. A request may
// reach the store twice, so what is asked must be recognised when it is there already.
struct ObjectChange {
  enum class Create : uint8_t {
    kNo,           // kAbsent if the object is not there
    kExclusively,  // kExists if it is
    kIfAbsent,
  };
  struct Guard {
    enum class Test : uint8_t {
      kEquals,  // an absent key or attribute equals ""
      kBelow,   // what is there comes before `value` in the order of bytes; attributes only
    };
    std::string name;
    Test test = Test::kEquals;
    std::string value;
  };

  std::string object;
  Create create = Create::kNo;
  std::vector<Guard> attribute_guards;
  std::vector<Guard> key_guards;

  std::string append;
  std::map<std::string, std::string> set_attributes;
  std::map<std::string, std::string> set_keys;
  std::vector<std::string> remove_keys;
  bool remove = false;  // the object; then nothing else is asked
};

// A look at one object: what is asked for, of one moment.
struct ObjectLook {
  std::string object;
  bool attributes = false;
  int64_t offset = 0;  // of the bytes; fewer than `length` where the object ends
  int64_t length = 0;
  std::vector<std::string> keys;  // with their values; absent ones are left out
  // Or, if names_max > 0: names of keys after this one, in the order of bytes, without values.
  std::string names_after;
  size_t names_max = 0;  // the store may give fewer; ObjectReply::more
};

using ObjectRequest = std::variant<ObjectChange, ObjectLook>;

struct ObjectReply {
  ObjectOutcome outcome = ObjectOutcome::kUnknown;
  Status error;  // of kFailed and kUnknown, for people
  std::string bytes;
  std::map<std::string, std::string> attributes;
  std::map<std::string, std::string> keys;
  bool more = false;  // there are names behind the last one in `keys`
};

class ObjectStore {
 public:
  // Outstanding calls are not answered any more.
  virtual ~ObjectStore() = default;
  // Without an answer until then: kUnknown with DeadlineExceeded.
  virtual void Send(ObjectRequest request, MonotonicTime deadline,
                    Callback<void(ObjectReply)> done) = 0;
};

}  // namespace tailcast::storage
