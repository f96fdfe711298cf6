#include "tailcast/app/context.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::app {
namespace {

using ::testing::HasSubstr;

class ContextTest : public ::testing::Test {
 protected:
  ContextTest() { variables_["XDG_CONFIG_HOME"] = folder_; }
  ~ContextTest() override { std::filesystem::remove_all(folder_); }
  Environment Variables() {
    return [this](const std::string& name) {
      const auto it = variables_.find(name);
      return it == variables_.end() ? std::nullopt : std::optional(it->second);
    };
  }
  std::string Path() { return *Contexts::PathIn(Variables()); }
  const std::string folder_ = ::testing::TempDir() + "/contexts." + std::to_string(getpid());
  std::map<std::string, std::string> variables_;
};

TEST_F(ContextTest, KeepsContextsByName) {
  Contexts contexts = *Contexts::Load(Path());
  EXPECT_TRUE(contexts.all().empty());
  ASSERT_TRUE(contexts.Set("dev", {.dir = "/d", .cluster = "here"}).ok());
  ASSERT_TRUE(contexts.Set("prod", {.cell = "10.0.0.1:7400"}).ok());
  EXPECT_EQ(contexts.current(), "dev") << "the first one";
  ASSERT_TRUE(contexts.Use("prod").ok());
  ASSERT_TRUE(contexts.Save(Path()).ok());
  Contexts again = *Contexts::Load(Path());
  EXPECT_EQ(again.current(), "prod");
  EXPECT_EQ(again.Find("dev")->dir, "/d");
  EXPECT_EQ(again.Find("dev")->cluster, "here");
  EXPECT_EQ(again.Find("prod")->cell, "10.0.0.1:7400");
  ASSERT_TRUE(again.Remove("prod").ok());
  EXPECT_EQ(again.current(), "");
}

TEST_F(ContextTest, RefusesWhatIsNotThereAndSaysWhatIs) {
  Contexts contexts;
  EXPECT_THAT(contexts.Use("dev").message(), HasSubstr("tailcast context set"));
  ASSERT_TRUE(contexts.Set("prod", {.dir = "/d"}).ok());
  EXPECT_THAT(contexts.Use("prd").message(), HasSubstr("did you mean 'prod'"));
  EXPECT_TRUE(IsInvalidArgument(contexts.Set("a b", {})));
  EXPECT_TRUE(IsInvalidArgument(contexts.Set("", {})));
}

TEST_F(ContextTest, ADamagedFileIsNamed) {
  std::filesystem::create_directories(folder_ + "/tailcast");
  std::ofstream(Path()) << "{";
  const Status status = Contexts::Load(Path()).status();
  EXPECT_TRUE(IsDataLoss(status));
  EXPECT_THAT(status.message(), HasSubstr(Path()));
}

TEST_F(ContextTest, TheEnvironmentComesBeforeTheContext) {
  EXPECT_EQ(DefaultPlace(Variables())->origin, "") << "nothing says anything";
  Contexts contexts;
  ASSERT_TRUE(contexts.Set("dev", {.dir = "/dev"}).ok());
  ASSERT_TRUE(contexts.Set("prod", {.dir = "/prod"}).ok());
  ASSERT_TRUE(contexts.Save(Path()).ok());
  EXPECT_EQ(DefaultPlace(Variables())->dir, "/dev");
  variables_["TAILCAST_CONTEXT"] = "prod";
  EXPECT_EQ(DefaultPlace(Variables())->dir, "/prod");
  EXPECT_EQ(DefaultPlace(Variables())->origin, "context 'prod'");
  variables_["TAILCAST_DIR"] = "/env";
  EXPECT_EQ(DefaultPlace(Variables())->dir, "/env");
  EXPECT_EQ(DefaultPlace(Variables())->origin, "TAILCAST_DIR");
  variables_["TAILCAST_CELL"] = "here";
  EXPECT_EQ(DefaultPlace(Variables())->cluster, "here");
  variables_["TAILCAST_CELL"] = "h:1";
  EXPECT_THAT(DefaultPlace(Variables()).status().message(), HasSubstr("TAILCAST_CELL=h:1"));
  variables_.erase("TAILCAST_DIR");
  EXPECT_EQ(DefaultPlace(Variables())->cell, "h:1");
  variables_["TAILCAST_CELL"] = "here";
  EXPECT_THAT(DefaultPlace(Variables()).status().message(), HasSubstr("needs TAILCAST_DIR"));
}

TEST_F(ContextTest, WithoutAHomeThereAreNoContexts) {
  variables_.clear();
  EXPECT_TRUE(DefaultPlace(Variables()).ok());
  variables_["TAILCAST_CONTEXT"] = "prod";
  EXPECT_THAT(DefaultPlace(Variables()).status().message(), HasSubstr("HOME"));
}

}  // namespace
}  // namespace tailcast::app
