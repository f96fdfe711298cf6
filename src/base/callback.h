// The one callback type: moved, called exactly once unless its comment says otherwise.
#pragma once

#include "absl/functional/any_invocable.h"

namespace tailcast {
template <typename Signature>
using Callback = absl::AnyInvocable<Signature>;
using Task = Callback<void()>;
}  // namespace tailcast
