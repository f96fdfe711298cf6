// Keeps the latest price of each item in memory, as a serving process would, and prints them when
// it has seen COUNT updates: example_consumer SCHEDULER_ADDRESS STREAM COUNT
#include <tailcast/consumer/consumer.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: example_consumer HOST:PORT STREAM COUNT\n");
    return 2;
  }
  tailcast::consumer::Options options;
  options.cell = argv[1];
  options.stream = argv[2];
  options.profile = tailcast::consumer::Profile::kLowLatency;
  auto consumer = tailcast::consumer::Consumer::Open(options);
  if (!consumer.ok()) {
    std::fprintf(stderr, "%s\n", consumer.status().ToString().c_str());
    return 1;
  }
  std::map<std::string, std::string> prices;
  for (long left = std::atol(argv[3]); left > 0;) {
    const auto batch = (*consumer)->Poll(tailcast::Duration::Seconds(10));
    if (!batch.ok()) {
      std::fprintf(stderr, "%s\n", batch.status().ToString().c_str());
      return 1;
    }
    if (batch->empty()) {
      std::fprintf(stderr, "nothing came for 10 seconds\n");
      return 1;
    }
    for (const tailcast::consumer::Message& message : *batch) {
      const std::string update(message.payload);
      const size_t space = update.find(' ');
      prices[update.substr(0, space)] = update.substr(space + 1);
      --left;
    }
  }
  for (const auto& [item, price] : prices) std::printf("%s %s", item.c_str(), price.c_str());
  // Where to go on after a restart, in this or any other cell.
  std::fprintf(stderr, "%s\n", (*consumer)->position(0)->ToString().c_str());
  return 0;
}
