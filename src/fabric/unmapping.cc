#include "tailcast/fabric/unmapping.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "tailcast/base/scope.h"
#include "tailcast/base/time.h"

namespace tailcast::fabric {
namespace {

constexpr uint64_t kPieceBytes = 4 << 20;
constexpr Duration kPause = Duration::Millis(40);
// The memory is the server's until then: large ones go faster.
constexpr Duration kAllOfIt = Duration::Seconds(4);

struct Unmapping {
  std::vector<Mapping> mappings;
  Duration pause;
  Scope scope;
};

void UnmapNext(Reactor& reactor, const std::shared_ptr<Unmapping>& left) {
  reactor.At(reactor.Now() + left->pause, left->scope.Bind([&reactor, left] {
    left->mappings.back().DropFront(kPieceBytes);
    if (left->mappings.back().size() == 0) left->mappings.pop_back();
    if (!left->mappings.empty()) UnmapNext(reactor, left);
  }));
}

}  // namespace

void UnmapSlowly(Reactor& reactor, std::vector<Mapping> mappings) {
  int64_t pieces = 0;
  for (const Mapping& mapping : mappings) {
    pieces += static_cast<int64_t>((mapping.size() + kPieceBytes - 1) / kPieceBytes);
  }
  if (pieces == 0) return;
  const auto all = std::make_shared<Unmapping>();
  all->mappings = std::move(mappings);
  all->pause = std::min(kPause, kAllOfIt / pieces);
  UnmapNext(reactor, all);
}

}  // namespace tailcast::fabric
