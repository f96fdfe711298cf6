// The model is believed because it says, within a tenth, what up to 64 real agents do in virtual
// time.
#include "tailcast/scale/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tailcast/scale/agents.h"
#include "tailcast/scale/report.h"

namespace tailcast::scale {
namespace {

TEST(Calibrate, TheModelSaysWhatAgentsDo) {
  const auto all = Calibrate();
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_GE(all->size(), 50u);
  for (const Calibrated& one : *all) {
    EXPECT_GT(one.agents, 0) << one.setup << ": " << one.what;
    EXPECT_TRUE(one.Near()) << one.setup << ": " << one.what;
  }
  const std::string text = CalibrationText(*all);
  EXPECT_EQ(text.find("TOO FAR"), std::string::npos) << text;
}

// What calm agents never do, so that the model need not say it of them.
TEST(Agents, NeverReadThePrimaryLayerOrFurtherReplicasInACalmCell) {
  const auto observed = Observe({.consumers = 4, .measured = Duration::Seconds(5)});
  ASSERT_TRUE(observed.ok()) << observed.status();
  EXPECT_EQ(observed->fallbacks, 0);
  EXPECT_EQ(observed->wider_reads, 0);
  EXPECT_GT(observed->delay_us.Count(), 0u);
}

}  // namespace
}  // namespace tailcast::scale
