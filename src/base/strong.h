// Strong types of plain numbers: an enum class without names but those of values that mean
// something special, such as 0. The compiler then lets no two of them be mixed, and what grows is
// still compared.
//
//   enum class Epoch : uint64_t {};
//   reply.set_epoch(Raw(epoch));             // to the wire, a format or a log
//   const Epoch epoch{request.epoch()};      // and back
#pragma once

#include <type_traits>

namespace tailcast {

template <typename E>
requires std::is_enum_v<E>
constexpr std::underlying_type_t<E> Raw(E number) {
  return static_cast<std::underlying_type_t<E>>(number);
}

// Of a number that grows by one.
template <typename E>
requires std::is_enum_v<E>
constexpr E Successor(E number) { return E(Raw(number) + 1); }

}  // namespace tailcast
