// A cache of several real servers for benchmarks: shared memory, gRPC, one thread for all servers.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

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

class TestCell {
 public:
  // `tcp`: open the tcp door instead of the shm door.
  TestCell(int servers, uint64_t memory_bytes, bool tcp = false) {
    const std::string folder = "/tmp/tailcast_cache_" + std::to_string(::getpid());
    ::mkdir(folder.c_str(), 0700);
    std::promise<RingConfig> ready;
    thread_ = std::thread([&, servers, memory_bytes, tcp, folder] {
      ThreadLoop loop;
      loop_ = &loop;
      struct One {
        std::unique_ptr<fabric::Exporter> exporter;
        std::unique_ptr<rpc::Server> rpc;
        std::unique_ptr<Server> server;
      };
      auto connector = rpc::MakeGrpcConnector(loop);
      std::vector<One> all;
      RingConfig config;
      config.configuration_id = ConfigurationId{1};
      for (int i = 0; i < servers; ++i) {
        One& one = all.emplace_back();
        fabric::ExporterOptions exporter;
        exporter.name = "cache-" + std::to_string(i);
        if (tcp) {
          exporter.tcp_listen = "127.0.0.1:0";
        } else {
          exporter.shm_socket_path = folder + "/" + std::to_string(i) + ".sock";
        }
        one.exporter = fabric::MakeExporter(exporter);
        one.rpc = rpc::MakeGrpcServer(loop);
        ServerOptions options;
        options.name = exporter.name;
        options.incarnation = ProcessIncarnation{1};
        options.memory_bytes = memory_bytes;
        options.core.ttl = Duration::Seconds(3600);
        one.server = std::make_unique<Server>(&loop, one.exporter.get(), one.rpc.get(),
                                              connector.get(), options);
        auto fabric_addresses = one.server->Start();
        TAILCAST_CHECK(fabric_addresses.ok(), fabric_addresses.status().ToString());
        auto rpc_address = one.rpc->Start("127.0.0.1:0");
        TAILCAST_CHECK(rpc_address.ok(), rpc_address.status().ToString());
        config.replicas.push_back(
            {exporter.name, *rpc_address, *fabric_addresses, ProcessIncarnation{1}});
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
