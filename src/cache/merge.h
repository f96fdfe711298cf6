// The three joins of a value with another (types.h: MergeRule), as plain functions on bytes. The
// server applies them to its memory, the client to the answers of several replicas, MemoryCache to
// a map; a test holds all three against each other.
#pragma once

#include <string>
#include <string_view>

#include "tailcast/cache/types.h"

namespace tailcast::cache {

// What joining `given` into `stored` does. kApplied: the result differs from `stored`. kNoChange:
// it does not. kMismatch (kLongerWins only): neither is a prefix of the other; both must be
// dropped. kRefused: `given` is malformed for the rule (kMaxLanes: size no multiple of 8).
//
// kMaxBytes orders values of different size by size, so that it stays a join.
MutationResult CompareForMerge(MergeRule rule, std::string_view stored, std::string_view given);

// Joins `given` into `stored`, with the result of CompareForMerge. `stored` changes only on
// kApplied.
MutationResult MergeInto(MergeRule rule, std::string& stored, std::string_view given);

// Whether a value may be stored under a rule at all: what CompareForMerge refuses, nothing else.
bool WellFormed(MergeRule rule, std::string_view value);

}  // namespace tailcast::cache
