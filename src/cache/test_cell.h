// Caches of several real servers for tests and benchmarks: TestCell has them on one thread.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tailcast/base/check.h"
#include "tailcast/base/process_incarnation.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/cache/client.h"
#include "tailcast/cache/server.h"
#include "tailcast/fabric/connect.h"
#include "tailcast/rpc/grpc_rpc.h"

namespace tailcast::cache {

struct TestServerOptions {
  fabric::ExporterOptions exporter;
  ServerOptions server;  // the incarnation is kTestIncarnation, whatever it says
};
inline constexpr ProcessIncarnation kTestIncarnation{1};

// One real server, of which nothing expires. Everything on the loop's thread; what it is given
// outlives it.
class TestServer {
 public:
  // Before `rpc` starts.
  TestServer(ThreadLoop& loop, rpc::Server& rpc, rpc::Connector& connector,
             TestServerOptions options) {
    options.exporter.loop = &loop;
    exporter_ = fabric::MakeExporter(options.exporter);
    options.server.incarnation = kTestIncarnation;
    options.server.core.ttl = Duration::Seconds(3600);
    server_ = std::make_unique<Server>(&loop, exporter_.get(), &rpc, &connector, options.server);
  }
  // Where its memory can be read.
  std::vector<std::string> Start() {
    auto addresses = server_->Start();
    TAILCAST_CHECK(addresses.ok(), addresses.status().ToString());
    return *addresses;
  }

 private:
  std::unique_ptr<fabric::Exporter> exporter_;
  std::unique_ptr<Server> server_;
};

class TestCell {
 public:
  // `driver`: "shm", "tcp" or "verbs": the only door that is open. "verbs" needs an RDMA device at
  // TAILCAST_TEST_VERBS_HOST.
  TestCell(int servers, uint64_t memory_bytes, const std::string& driver = "shm") {
    const std::string folder = std::filesystem::temp_directory_path().string() +
                               "/tailcast_cache_" + std::to_string(::getpid());
    ::mkdir(folder.c_str(), 0700);
    std::promise<RingConfig> ready;
    thread_ = std::thread([&, servers, memory_bytes, driver, folder] {
      ThreadLoop loop;
      loop_ = &loop;
      struct One {
        std::unique_ptr<rpc::Server> rpc;
        std::unique_ptr<TestServer> server;
      };
      auto connector = rpc::MakeGrpcConnector(loop);
      std::vector<One> all;
      RingConfig config;
      config.configuration_id = ConfigurationId{1};
      for (int i = 0; i < servers; ++i) {
        One& one = all.emplace_back();
        TestServerOptions options;
        options.exporter.name = options.server.name = "cache-" + std::to_string(i);
        if (driver == "verbs") {
          options.exporter.verbs_host = std::getenv("TAILCAST_TEST_VERBS_HOST");
        } else if (driver == "tcp") {
          options.exporter.tcp_listen = "127.0.0.1:0";
        } else {
          options.exporter.shm_socket_path = folder + "/" + std::to_string(i) + ".sock";
        }
        options.server.memory_bytes = memory_bytes;
        one.rpc = rpc::MakeGrpcServer(loop);
        one.server = std::make_unique<TestServer>(loop, *one.rpc, *connector, options);
        const std::vector<std::string> fabric_addresses = one.server->Start();
        auto rpc_address = one.rpc->Start("127.0.0.1:0");
        TAILCAST_CHECK(rpc_address.ok(), rpc_address.status().ToString());
        config.replicas.push_back(
            {options.server.name, *rpc_address, fabric_addresses, kTestIncarnation});
      }
      ready.set_value(config);
      loop.Run();
      for (One& one : all) one.server.reset();
    });
    config_ = ready.get_future().get();
  }
  ~TestCell() {
    loop_->Stop();
    thread_.join();
  }
  const RingConfig& config() const { return config_; }

 private:
  ThreadLoop* loop_ = nullptr;
  RingConfig config_;
  std::thread thread_;
};

}  // namespace tailcast::cache
