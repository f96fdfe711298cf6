#include "tailcast/app/terminal.h"

#include "gtest/gtest.h"

namespace tailcast::app {
namespace {

TEST(ScreenText, ReplacesWhatWasShownBefore) {
  EXPECT_EQ(ScreenText("one\ntwo\n", {.columns = 80, .lines = 24}),
            "\033[Hone\033[K\r\ntwo\033[K\033[J");
}

TEST(ScreenText, CutsWhatDoesNotFitAndSaysHowMuch) {
  EXPECT_EQ(ScreenText("123456\n2\n3\n4\n", {.columns = 4, .lines = 4}),
            "\033[H1234\033[K\r\n2\033[K\r\n3\033[K\r\n4\033[K\033[J");
  EXPECT_EQ(ScreenText("1\n2\n3\n4\n", {.columns = 80, .lines = 3}),
            "\033[H1\033[K\r\n2\033[K\r\n... 2 more lines\033[K\033[J");
}

}  // namespace
}  // namespace tailcast::app
