#include "tailcast/app/reference.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tailcast::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReferenceTest : public ::testing::Test {
 protected:
  ReferenceTest() {
    CLI::App* get = app_.add_subcommand("get", "It's got");
    get->add_option("-o,--output", text_, "Where to")->required();
    get->add_option("--way", text_, "How")->check(CLI::IsMember({"shm", "tcp"}));
    get->add_option("FILE", text_, "Which .file")->required();
    get->add_flag("--all", flag_, "Everything");
    app_.add_subcommand("stream", "Streams")->add_subcommand("list", "Those there are");
  }
  std::vector<CommandReference> All() const { return ReferenceOf(app_, "prog"); }

  CLI::App app_{"A program"};
  std::string text_;
  bool flag_ = false;
};

TEST_F(ReferenceTest, HasEachCommandAndEachOptionOfHelp) {
  std::vector<std::string> names;
  for (const CommandReference& command : All()) names.push_back(command.name);
  EXPECT_THAT(names, ElementsAre("prog", "prog get", "prog stream", "prog stream list"));
  const CommandReference get = All()[1];
  ASSERT_EQ(get.options.size(), 5u);  // --help is one
  EXPECT_THAT(get.options[1].names, ElementsAre("--output", "-o"));
  EXPECT_TRUE(get.options[1].takes_value && get.options[1].required);
  EXPECT_THAT(get.options[2].values, ElementsAre("shm", "tcp"));
  EXPECT_EQ(get.options[3].positional, "FILE");
  EXPECT_FALSE(get.options[4].takes_value);
}

TEST_F(ReferenceTest, AManualPageIsOneOfTheCommand) {
  const std::string page = ManualPage(All()[1], "1.0");
  EXPECT_EQ(ManualPageName(All()[3]), "prog-stream-list.1");
  EXPECT_TRUE(page.starts_with(".TH PROG\\-GET 1 \"\" \"tailcast 1.0\"\n")) << page;
  EXPECT_THAT(page, HasSubstr("prog\\-get \\- It's got\n"));
  EXPECT_THAT(page, HasSubstr(".TP\n\\fB\\-\\-way\\fR \\fI{shm|tcp}\\fR\nHow\n"));
  EXPECT_THAT(page, HasSubstr(".TP\n\\fB\\-\\-all\\fR\nEverything\n"));
  EXPECT_THAT(page, HasSubstr(".TP\n\\fIFILE\\fR\nWhich .file (required)\n"));
  EXPECT_THAT(ManualPage(All()[2], "1.0"), HasSubstr("see \\fBprog\\-stream\\-list\\fR(1)\n"));
}

TEST_F(ReferenceTest, TextThatLooksLikeARequestOfTroffIsNone) {
  CLI::App app(".SH it");
  const std::string page = ManualPage(ReferenceOf(app, "p")[0], "1");
  EXPECT_THAT(page, HasSubstr("p \\- \\&.SH it\n"));
}

TEST_F(ReferenceTest, AShellIsToldCommandsOptionsAndValues) {
  const std::string bash = BashCompletion(All());
  EXPECT_THAT(bash, HasSubstr("'prog stream') candidates='list --help -h' ;;\n"));
  EXPECT_THAT(bash, HasSubstr("'prog get --way') COMPREPLY=($(compgen -W 'shm tcp'"));
  EXPECT_THAT(bash, HasSubstr("'prog get --output'|'prog get -o') COMPREPLY=(); return"));
  const std::string zsh = ZshCompletion(All());
  EXPECT_TRUE(zsh.starts_with("#compdef prog\n"));
  EXPECT_THAT(zsh, HasSubstr("'get:It'\\''s got'"));
  EXPECT_THAT(zsh, HasSubstr("('prog get --way') compadd shm tcp; return"));
}

}  // namespace
}  // namespace tailcast::app
