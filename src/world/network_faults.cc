// What befalls the network and the fabric.
#include <string>
#include <vector>

#include "tailcast/world/faults.h"

namespace tailcast::world {

Fault CutLink(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    const std::vector<std::string>& cells = d.cell_names();
    if (cells.size() < 2) return;
    const size_t a = rng.Below(cells.size());
    const size_t b = (a + 1 + rng.Below(cells.size() - 1)) % cells.size();
    const bool cut = rng.Chance(0.55);
    d.Say((cut ? "cut " : "mend ") + cells[a] + " -> " + cells[b]);
    if (rng.Chance(0.5)) {
      d.network().Partition(cells[a], cells[b], cut);
    } else {
      d.network().Cut(cells[a], cells[b], cut);
    }
  };
  return {.name = "cut", .apply = apply, .heal = [&d] { d.network().MendAll(); }};
}

Fault BadFabric(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    fabric::FakeLink link;
    if (!rng.Chance(0.7)) return d.fabric().SetEveryLink(link);
    d.Say("a bad fabric");
    link.torn_probability = rng.Unit() * 0.2;
    link.late_probability = rng.Unit() * 0.01;
    link.lost_probability = rng.Unit() * 0.002;
    link.tail_probability = rng.Unit() * 0.05;
    link.notification_loss_probability = rng.Unit() * 0.2;
    link.jitter = Duration::Micros(rng.Between(0, 500));
    d.fabric().SetEveryLink(link);
  };
  return {.name = "fabric", .apply = apply, .heal = [&d] { d.fabric().SetEveryLink({}); }};
}

Fault SlowPeer(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    const std::string server = DrawCell(d, rng) + "/cache-1.data";
    const Duration delay = rng.Chance(0.5) ? Duration::Millis(rng.Between(1, 100)) : Duration();
    d.Say(server + " is slow by " + std::to_string(delay.millis()) + " ms");
    d.fabric().SetServerDelay(server, delay);
  };
  const auto heal = [&d] {
    for (const std::string& cell : d.cell_names()) {
      d.fabric().SetServerDelay(cell + "/cache-1.data", Duration());
    }
  };
  return {.name = "slow", .apply = apply, .heal = heal};
}

Fault ResetConnections(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    const std::string& a = DrawCell(d, rng);
    const std::string& b = DrawCell(d, rng);
    d.Say("reset the connections of " + a + " and " + b);
    d.network().Reset(a, b);
  };
  return {.name = "reset", .apply = apply};
}

Fault CutInside(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    std::vector<std::string> names;
    for (const auto& [name, p] : d.cell(DrawCell(d, rng)).processes) {
      names.push_back(p->full_name());
    }
    if (names.size() < 2) return;
    const std::string& a = names[rng.Below(names.size())];
    const std::string& b = names[rng.Below(names.size())];
    const bool back = rng.Chance(0.5);
    d.Say("cut " + a + " -> " + b + (back ? " and back" : ""));
    d.network().Cut(a, b, true);
    if (back) d.network().Cut(b, a, true);
    for (const char* instance : {".data", ".metadata"}) {
      d.fabric().Cut(a, b + instance, true, back);
      d.fabric().Cut(b, a + instance, back, true);
    }
  };
  const auto heal = [&d] {
    d.network().MendAll();
    d.fabric().MendAll();
  };
  return {.name = "inside", .apply = apply, .heal = heal};
}

Fault ClogLink(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    const std::string& a = DrawCell(d, rng);
    const std::string& b = DrawCell(d, rng);
    if (a == b) return;
    sim::Link& link = d.network().LinkBetween(a, b);
    link.bytes_per_second = rng.Chance(0.7) ? rng.Between(20'000, 2'000'000) : 0;
    link.delay = d.options().link_delay * rng.Between(1, 6);
    d.Say(a + " -> " + b + " carries " + std::to_string(link.bytes_per_second) + " bytes/s in " +
          std::to_string(link.delay.millis()) + " ms");
  };
  const auto heal = [&d] {
    for (const std::string& a : d.cell_names()) {
      for (const std::string& b : d.cell_names()) {
        if (a == b) continue;
        d.network().LinkBetween(a, b).bytes_per_second = 0;
        d.network().LinkBetween(a, b).delay = d.options().link_delay;
      }
    }
  };
  return {.name = "clog", .apply = apply, .heal = heal};
}

}  // namespace tailcast::world
