#include "tailcast/cell/process_config.h"

#include <gtest/gtest.h>

namespace tailcast::cell {
namespace {

constexpr char kSmallest[] =
    "version: 1\ncell: us\nname: cache-1\nstore: posix:/srv/us\nscheduler: 10.0.0.1:7400\n"
    "cell_key: none\n";

std::string ErrorOf(const std::string& text) {
  const auto config = ProcessConfig::Parse(text, "p.yaml");
  return config.ok() ? "" : config.status().message();
}

TEST(ProcessConfig, HasADefaultForAllButSixKeys) {
  const auto config = ProcessConfig::Parse(kSmallest, "p.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->poll, Duration::Millis(50));
  EXPECT_EQ(config->data_ttl, Duration::Seconds(60));
  EXPECT_TRUE(config->durable);
}

TEST(ProcessConfig, ReadsBackWhatItWrites) {
  ProcessConfig config = *ProcessConfig::Parse(kSmallest, "p.yaml");
  config.caches = {"cache-1", "cache-2"};
  config.profile = Profile::kLowLatency;
  config.durable = false;
  config.poll = Duration::Millis(10);
  config.data_cache_bytes = 64 << 20;
  config.topology = "/srv/topology.yaml";
  const auto again = ProcessConfig::Parse(config.ToYaml(), "p.yaml");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ToYaml(), config.ToYaml());
  EXPECT_EQ(again->caches, config.caches);
  EXPECT_EQ(again->poll, config.poll);
  EXPECT_FALSE(again->durable);
}

TEST(ProcessConfig, WithoutACellKeyOnlyWhenItSaysSo) {
  std::string text = kSmallest;
  text.resize(text.find("cell_key"));
  EXPECT_NE(ErrorOf(text).find("the key 'cell_key' is missing"), std::string::npos);
  EXPECT_NE(ErrorOf(text + "cell_key: keys/us\n").find("absolute path"), std::string::npos);
  EXPECT_NE(ErrorOf(text + "cell_key: None\n").find("absolute path"), std::string::npos);
  EXPECT_EQ(ProcessConfig::Parse(text + "cell_key: /etc/us.key\n", "p.yaml")->cell_key,
            "/etc/us.key");
}

TEST(ProcessConfig, NamesTheKeyThatIsMissing) {
  EXPECT_EQ(ErrorOf("version: 1\nname: x\n"), "p.yaml:1:1: the key 'cell' is missing");
  EXPECT_NE(ErrorOf("cell: x\n").find("'version'"), std::string::npos);
}

TEST(ProcessConfig, NamesTheKeyAndPlaceOfABadValue) {
  EXPECT_EQ(ErrorOf(std::string(kSmallest) + "reader:\n  poll_ms: 0\n"),
            "p.yaml:8:3: key 'poll_ms': must be a whole number from 1 to 86400000");
  EXPECT_NE(
      ErrorOf(std::string(kSmallest) + "profile: low-latncy\n").find("did you mean 'low-latency'"),
      std::string::npos);
  EXPECT_NE(ErrorOf(std::string(kSmallest) + "cache: {data_byte: 1GB}\n")
                .find("did you mean 'data_bytes'"),
            std::string::npos);
  EXPECT_EQ(ErrorOf("version: 1\ncell: c\nname: a.b\n"),
            "p.yaml:3:1: key 'name': 'a.b': use 1 to 63 of a-z 0-9 -");
  EXPECT_NE(ErrorOf(std::string(kSmallest) + "durability: maybe\n").find("durable or page-cache"),
            std::string::npos);
}

TEST(ProcessConfig, CachesAreProcessesOrMemcachedServers) {
  const std::string text = kSmallest;
  const auto config =
      ProcessConfig::Parse(text + "caches: [\"memcached:a:1\", \"memcached:b:2\"]\n", "p.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(ProcessConfig::Parse(config->ToYaml(), "p.yaml")->caches, config->caches);
  EXPECT_NE(ErrorOf(text + "caches: [\"memcached:a\"]\n").find("'a' has no port"),
            std::string::npos);
  EXPECT_NE(ErrorOf(text + "caches: [\"memcached:a:1\", cache-2]\n").find("one or the other"),
            std::string::npos);
}

TEST(ProcessConfig, GivesEachOfTheTwoCachesAPort) {
  ProcessConfig config = *ProcessConfig::Parse(kSmallest, "p.yaml");
  config.fabric_listen = "10.1.0.7:7510";
  EXPECT_EQ(config.FabricListen("data"), "10.1.0.7:7510");
  EXPECT_EQ(config.FabricListen("metadata"), "10.1.0.7:7511");
  for (const char* as_it_is : {"10.1.0.7:0", "[::1]:0", "nonsense", "h:12x", "h:"}) {
    config.fabric_listen = as_it_is;
    EXPECT_EQ(config.FabricListen("data"), as_it_is);
    EXPECT_EQ(config.FabricListen("metadata"), as_it_is);
  }
}

TEST(ProcessConfig, TellsDurabilityInTheUrlOfTheStore) {
  ProcessConfig config = *ProcessConfig::Parse(kSmallest, "p.yaml");
  for (bool durable : {true, false}) {
    config.durable = durable;
    const auto url = storage::ParseStoreUrl(config.StoreUrl().ToString());
    ASSERT_TRUE(url.ok()) << url.status();
    EXPECT_EQ(url->folder, "/srv/us");
    EXPECT_EQ(url->durable, durable);
  }
}

TEST(ProcessConfig, TakesACephStore) {
  const std::string text =
      "version: 1\ncell: us\nname: c\nscheduler: a:1\ncell_key: none\n"
      "store: \"ceph:/etc/ceph/ceph.conf?pool=us&user=cell\"\n";
  const auto config = ProcessConfig::Parse(text, "p.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->StoreUrl().pool, "us");
  EXPECT_EQ(config->StoreUrl().user, "cell");
  EXPECT_NE(ErrorOf(text + "durability: page-cache\n").find("posix: storage only"),
            std::string::npos);
  EXPECT_NE(ErrorOf("version: 1\ncell: us\nname: c\nscheduler: a:1\nstore: \"ceph:/a?pol=x\"\n")
                .find("did you mean 'pool'"),
            std::string::npos);
}

TEST(ProcessConfig, WantsAnAbsoluteStore) {
  EXPECT_NE(ErrorOf("version: 1\ncell: us\nname: c\nstore: srv/us\nscheduler: a:1\n")
                .find("posix:/absolute/folder"),
            std::string::npos);
}

}  // namespace
}  // namespace tailcast::cell
