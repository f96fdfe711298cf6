// The program of a fuzz target: TARGET_fuzz [--seconds N] [--seed S] [--runs N] [--replay FILE]
// [--out FOLDER]. Exit code 0: every input was survived; 1: one was not, and is saved.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tailcast/base/check.h"
#include "tailcast/base/crc32c.h"
#include "tailcast/base/log.h"
#include "tailcast/base/rng.h"
#include "tailcast/fuzz/hunt.h"
#include "tailcast/fuzz/target.h"

#ifdef __SANITIZE_ADDRESS__
// With the stack of a failed check; and no input makes a decoder take 2 GB.
extern "C" const char* __asan_default_options() {
  return "handle_abort=1:max_allocation_size_mb=2048";
}
#endif

// Those that a target may do without.
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                                                size_t size_max, unsigned int seed);
namespace tailcast::fuzz {
__attribute__((weak)) std::vector<std::string> Seeds();

namespace {

constexpr Duration kMinimise = Duration::Seconds(20);

Target ThisTarget() {
  Target target{.run = LLVMFuzzerTestOneInput, .mutate = LLVMFuzzerCustomMutator};
  if (Seeds != nullptr) target.seeds = Seeds();
  return target;
}

bool Write(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  return static_cast<bool>(out.flush());
}

std::string Escaped(const std::string& bytes) {
  std::string text;
  for (const char c : bytes.substr(0, 256)) {
    char hex[8];
    std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned>(static_cast<uint8_t>(c)));
    const bool plain = c >= ' ' && c <= '~' && c != '"' && c != '\\';
    text += plain ? std::string(1, c) : std::string(hex);
  }
  return "\"" + text + "\"" + (bytes.size() > 256 ? " ..." : "");
}

int ReplayFile(const std::string& name, const Target& target, const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "%s: can't read %s\n", name.c_str(), path.c_str());
    return 2;
  }
  const std::string input{std::istreambuf_iterator<char>(in), {}};
  const std::optional<Death> death = Replay(target, input, false);
  std::printf("%s: %zu bytes of %s: %s\n", name.c_str(), input.size(), path.c_str(),
              death.has_value() ? death->how.c_str() : "survived");
  return death.has_value() ? 1 : 0;
}

// Saves what a target died of, and the smallest input that does the same.
void Save(const std::string& name, const Target& target, const Death& death,
          const std::string& folder) {
  char hash[9];
  std::snprintf(hash, sizeof hash, "%08x", Crc32c(death.input));
  const std::string path =
      (std::filesystem::absolute(folder) / (name + "-" + hash)).lexically_normal();
  if (!Write(path, death.input)) std::printf("%s: can't write %s\n", name.c_str(), path.c_str());
  std::printf("%s: the input (%zu bytes): %s\n", name.c_str(), death.input.size(), path.c_str());
  std::fflush(stdout);
  if (!Replay(target, death.input, true).has_value()) {
    std::printf("%s: it is survived when run alone: the target keeps something from run to run\n",
                name.c_str());
    return;
  }
  const std::string small = Minimise(target, death, kMinimise);
  Write(path + ".min", small);
  std::printf("%s: as small as it gets (%zu bytes): %s.min\n  %s\n", name.c_str(), small.size(),
              path.c_str(), Escaped(small).c_str());
}

}  // namespace

int Main(int argc, char** argv) {
  const std::string name = std::filesystem::path(argv[0]).filename();
  CLI::App app("Runs " + name + " with broken inputs until one is not survived", name);
  HuntOptions options;
  options.seed = RandomSeed() % 1'000'000;
  int64_t seconds = 60;
  std::string replay, out = ".";
  app.add_option("--seconds", seconds, "how long")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--seed", options.seed, "of all random choices; default: another one each time");
  app.add_option("--runs", options.runs_max, "end after so many inputs");
  app.add_option("--replay", replay, "run the input in this file, nothing else");
  app.add_option("--out", out, "folder for an input that was not survived")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  TAILCAST_CHECK(SetLogLevels("off").ok());

  const Target target = ThisTarget();
  if (!replay.empty()) return ReplayFile(name, target, replay);
  options.time = Duration::Seconds(seconds);
  std::printf("%s: seed %llu, %lld s\n", name.c_str(),
              static_cast<unsigned long long>(options.seed), static_cast<long long>(seconds));
  std::fflush(stdout);
  const HuntReport report = Hunt(target, options);
  const double took = static_cast<double>(report.time.micros()) / 1e6;
  std::printf("%s: %llu runs in %.1f s, %.0f a second; %llu edges, %llu inputs kept\n",
              name.c_str(), static_cast<unsigned long long>(report.runs), took,
              static_cast<double>(report.runs) / std::max(took, 1e-3),
              static_cast<unsigned long long>(report.edges),
              static_cast<unsigned long long>(report.inputs_kept));
  if (!report.death.has_value()) return 0;
  std::printf("%s: DIED in run %llu of seed %llu: %s\n", name.c_str(),
              static_cast<unsigned long long>(report.runs),
              static_cast<unsigned long long>(options.seed), report.death->how.c_str());
  Save(name, target, *report.death, out);
  return 1;
}

}  // namespace tailcast::fuzz

int main(int argc, char** argv) { return tailcast::fuzz::Main(argc, argv); }
