// The one suite of all clients (client_suite_testing.h), for the real one in virtual time.
#include <functional>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tailcast/cache/client_suite_testing.h"
#include "tailcast/cache/quorum_client_testing.h"

namespace tailcast::cache {
namespace {

class QuorumWorld : public ClientWorld {
 public:
  explicit QuorumWorld(FabricKind kind) : world_(kind) {}

  std::unique_ptr<Client> MakeClient() override {
    auto client = std::make_unique<FollowingClient>(*this);
    // It has connected before it is used.
    world_.time.RunFor(Duration::Millis(10));
    return client;
  }
  bool Turn(const std::function<bool()>& done) override {
    return world_.time.RunUntil(done, Duration::Seconds(30));
  }
  void LoseAll() override {
    const int servers = static_cast<int>(world_.processes.size());
    for (int i = 0; i < servers; ++i) world_.Kill(i);
    for (int i = 0; i < servers; ++i) world_.StartServer(i);
    world_.Publish();
    for (QuorumClient* const client : clients_) client->UpdateRing(world_.config);
    world_.time.RunFor(Duration::Seconds(2));
  }
  bool has_doorbells() const override { return true; }
  bool reads_inside_the_call() const override { return world_.net.immediate; }

 private:
  // Is told of each new ring, as by the registry.
  class FollowingClient final : public QuorumClient {
   public:
    explicit FollowingClient(QuorumWorld& world)
        : QuorumClient(world.world_.client_loop.get(), world.world_.client_connector.get(),
                       world.world_.client_rpc.get(), {.seed = ++world.seeds_},
                       world.world_.config),
          world_(world) {
      world_.clients_.push_back(this);
    }
    ~FollowingClient() override { std::erase(world_.clients_, this); }

   private:
    QuorumWorld& world_;
  };

  World world_;
  uint64_t seeds_ = 0;
  std::vector<QuorumClient*> clients_;
};

ClientSuiteParam Param(const char* name, FabricKind kind) {
  return {name, [kind] { return std::make_unique<QuorumWorld>(kind); }};
}
INSTANTIATE_TEST_SUITE_P(Quorum, ClientSuite,
                         testing::Values(Param("Immediate", FabricKind::kImmediate),
                                         Param("Delayed", FabricKind::kDelayed),
                                         Param("Scanning", FabricKind::kScanning)),
                         ClientSuiteName);

}  // namespace
}  // namespace tailcast::cache
