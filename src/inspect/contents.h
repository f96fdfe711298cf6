// What a value of the metadata cache says, for people. Values come from other processes: whatever
// they hold is survived.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tailcast/base/time.h"
#include "tailcast/inspect/key_name.h"
#include "tailcast/stream/metadata.h"

namespace tailcast::inspect {

// The files that a group's value knows, by sequence number; `seq` is one of the group.
std::map<int64_t, stream::PairMetadata> FilesOf(int64_t seq, std::string_view group_value);

// Lines without indentation; none for a chunk, or if the value does not decode. A lock's or a
// group's, as the name says.
std::vector<std::string> Describe(const KeyName& name, std::string_view value, WallTime now);

}  // namespace tailcast::inspect
