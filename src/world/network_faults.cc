// What befalls the network and the fabric.
#include <string>
#include <vector>

#include "tailcast/world/faults.h"

namespace tailcast::world {

namespace {

const char* Arrow(Ways ways) { return ways == Ways::kBoth ? " <-> " : " -> "; }

}  // namespace

void CutCells(Deployment& d, const std::string& from, const std::string& to, Ways ways, bool cut) {
  d.Say((cut ? "cut " : "mend ") + from + Arrow(ways) + to);
  d.network().Cut(from, to, cut);
  if (ways == Ways::kBoth) d.network().Cut(to, from, cut);
}

void CutProcesses(Deployment& d, const std::string& from, const std::string& to, Ways ways,
                  bool cut) {
  d.Say((cut ? "cut " : "mend ") + from + Arrow(ways) + to);
  const bool back = cut && ways == Ways::kBoth;
  d.network().Cut(from, to, cut);
  if (ways == Ways::kBoth) d.network().Cut(to, from, cut);
  for (const char* instance : {".data", ".metadata"}) {
    d.fabric().Cut(from, to + instance, cut, back);
    d.fabric().Cut(to, from + instance, back, cut);
  }
}

void Clog(Deployment& d, const std::string& from, const std::string& to, int64_t bytes_per_second,
          Duration delay) {
  sim::Link& link = d.network().LinkBetween(from, to);
  link.bytes_per_second = bytes_per_second;
  link.delay = delay;
  d.Say(from + " -> " + to + " carries " +
        (bytes_per_second == 0 ? "any number of" : std::to_string(bytes_per_second)) +
        " bytes/s in " + std::to_string(delay.millis()) + " ms");
}

void Unclog(Deployment& d, const std::string& from, const std::string& to) {
  sim::Link& link = d.network().LinkBetween(from, to);
  link.bytes_per_second = 0;
  link.delay = d.options().DelayOf(from, to);
}

void ResetBetween(Deployment& d, const std::string& a, const std::string& b) {
  d.Say("reset the connections of " + a + " and " + b);
  d.network().Reset(a, b);
}

void SlowDown(Deployment& d, const std::string& cache, Duration delay) {
  d.Say("reads at " + cache + " take " + std::to_string(delay.millis()) + " ms longer");
  d.fabric().SetServerDelay(cache + ".data", delay);
}

Fault CutLink(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    const std::vector<std::string>& cells = d.cell_names();
    if (cells.size() < 2) return;
    const size_t a = rng.Below(cells.size());
    const size_t b = (a + 1 + rng.Below(cells.size() - 1)) % cells.size();
    const bool cut = rng.Chance(0.55);
    CutCells(d, cells[a], cells[b], rng.Chance(0.5) ? Ways::kBoth : Ways::kOne, cut);
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
    const std::string cache = DrawCell(d, rng) + "/cache-1";
    SlowDown(d, cache, rng.Chance(0.5) ? Duration::Millis(rng.Between(1, 100)) : Duration());
  };
  const auto heal = [&d] {
    for (const std::string& cell : d.cell_names()) {
      for (const auto& [name, p] : d.cell(cell).processes) {
        if (p->IsCache()) d.fabric().SetServerDelay(p->full_name() + ".data", Duration());
      }
    }
  };
  return {.name = "slow", .apply = apply, .heal = heal};
}

Fault ResetConnections(Deployment& d) {
  const auto apply = [&d](Rng& rng) {
    const std::string& a = DrawCell(d, rng);
    const std::string& b = DrawCell(d, rng);
    ResetBetween(d, a, b);
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
    CutProcesses(d, a, b, rng.Chance(0.5) ? Ways::kBoth : Ways::kOne, true);
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
    const int64_t bytes_per_second = rng.Chance(0.7) ? rng.Between(20'000, 2'000'000) : 0;
    Clog(d, a, b, bytes_per_second, d.options().DelayOf(a, b) * rng.Between(1, 6));
  };
  const auto heal = [&d] {
    for (const std::string& a : d.cell_names()) {
      for (const std::string& b : d.cell_names()) {
        if (a != b) Unclog(d, a, b);
      }
    }
  };
  return {.name = "clog", .apply = apply, .heal = heal};
}

}  // namespace tailcast::world
