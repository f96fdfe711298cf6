// Publishes a price update a line: example_producer SCHEDULER_ADDRESS STREAM COUNT
#include <tailcast/producer/producer.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: example_producer HOST:PORT STREAM COUNT\n");
    return 2;
  }
  tailcast::producer::Options options;
  options.cell = argv[1];
  options.stream = argv[2];
  options.profile = tailcast::producer::Profile::kLowLatency;
  auto producer = tailcast::producer::Producer::Open(options);
  if (!producer.ok()) {
    std::fprintf(stderr, "%s\n", producer.status().ToString().c_str());
    return 1;
  }
  std::atomic<int> durable{0};
  const int count = std::atoi(argv[3]);
  for (int i = 0; i < count; ++i) {
    const std::string update = "item-" + std::to_string(i % 100) + " " + std::to_string(i) + "\n";
    // Waits only while the buffer is full; the outcome of each message comes by the callback.
    const auto taken = (*producer)->Publish(update, [&](const tailcast::producer::Ack& ack) {
      if (ack.outcome == tailcast::producer::AckOutcome::kDurable) ++durable;
    });
    if (!taken.ok()) {
      std::fprintf(stderr, "%s\n", taken.ToString().c_str());
      return 1;
    }
  }
  const auto closed = (*producer)->Close(tailcast::Duration::Seconds(30));
  std::printf("%d of %d durable\n", durable.load(), count);
  return closed.ok() && durable == count ? 0 : 1;
}
