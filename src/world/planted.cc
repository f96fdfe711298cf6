#include "tailcast/world/planted.h"

#include "tailcast/base/fault_point.h"
#include "tailcast/world/world.h"

namespace tailcast::world {

const std::vector<PlantedBug>& PlantedBugs() {
  static const std::vector<PlantedBug> bugs = {
      {"cache.shorter_wins", 1},
      {"cache.value_of_before", 1},
      {"cell.last_snapshot_but_one", 3},
      {"cell.nobody_told", 18},
      {"cell.old_version", 1},
      {"consumer.begin_at_floor", 27},
      {"consumer.deliver_over_hole", 2},
      {"consumer.jump_deleted", 146},
      {"consumer.keep_views_unpinned", 1},
      {"consumer.skip_hole", 2},
      {"consumer.skip_record_at_roll_over", 1},
      {"producer.index_before_data", 1},
      {"producer.seal_one_record_early", 2},
      {"producer.shadow_before_flush", 1},
      {"reader.seal_one_record_early", 19},
      {"reader.whole_chunks_only", 1},
      {"rpc.timer_kept", 1},
      {"scheduler.ended_is_done", 1},
      {"scheduler.keep_half", 7},
      {"scheduler.never_again", 1},
      {"scheduler.no_marker", 6},
      {"scheduler.nobody_asked", 28},
      {"storage.fake_no_epoch_guard", 11},
      {"storage.fake_shows_unflushed", 50},
      {"stream.hole_is_prefix", 23},
      {"stream.read_over_gap", 6},
      {"writer.chunk_from_middle", 1},
      {"writer.never_take_over", 1},
      {"writer.publish_before_flush", 1},
  };
  return bugs;
}

Finding FindPlanted(std::string_view name, uint64_t first, uint64_t seeds) {
  const PlantedFault planted{std::string(name)};
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const Outcome outcome = World(Options::Swarm(seed)).Run();
    if (!outcome.ok()) return {seed, outcome.problem};
  }
  return {};
}

}  // namespace tailcast::world
