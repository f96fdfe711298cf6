#include "tailcast/app/help_text.h"

#include <gtest/gtest.h>

namespace tailcast::app {
namespace {

TEST(HelpTextTest, WordsStayWholeAndTextStaysInItsColumn) {
  EXPECT_EQ(WrapHelp("Usage: x\n"
                     "  --name TEXT  What it is called, one line\n"
                     "  --much-longer TEXT\n"
                     "               Short\n",
                     36, 15),
            "Usage: x\n"
            "  --name TEXT  What it is called,\n"
            "               one line\n"
            "  --much-longer TEXT\n"
            "               Short\n");
}

TEST(HelpTextTest, NoLineIsLongerAndNoWordIsLost) {
  std::string text = "Publish standard input as messages of a stream\n  --key TEXT          ";
  for (int i = 0; i < 40; ++i) text += "word" + std::to_string(i) + " ";
  text += "\n  --x                 " + std::string(100, 'x') + "\n";
  for (const size_t columns : {20u, 45u, 80u, 200u}) {
    const std::string wrapped = WrapHelp(text, columns, 22);
    for (int i = 0; i < 40; ++i) {
      EXPECT_NE(wrapped.find("word" + std::to_string(i)), wrapped.npos);
    }
    for (size_t at = 0; at < wrapped.size();) {
      const size_t end = wrapped.find('\n', at);
      const std::string line = wrapped.substr(at, end - at);
      EXPECT_TRUE(line.size() <= columns || line.find("xxx") != line.npos) << columns << line;
      at = end + 1;
    }
  }
}

}  // namespace
}  // namespace tailcast::app
