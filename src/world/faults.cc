#include "tailcast/world/faults.h"

#include <utility>

namespace tailcast::world {

void Faults::Add(Fault fault, double apply, double heal) {
  table_.push_back({std::move(fault), apply, heal});
}

void Faults::Turn() {
  for (Row& row : table_) {
    if (rng_.Chance(row.apply)) {
      ++applied_;
      row.fault.apply(rng_);
    } else if (row.heal > 0 && rng_.Chance(row.heal)) {
      row.fault.heal_some ? row.fault.heal_some(rng_) : row.fault.heal();
    }
  }
}

void Faults::HealAll() {
  for (Row& row : table_) {
    if (row.fault.heal) row.fault.heal();
  }
}

const std::string& DrawCell(Deployment& deployment, Rng& rng) {
  return deployment.cell_names()[rng.Below(deployment.cell_names().size())];
}

}  // namespace tailcast::world
