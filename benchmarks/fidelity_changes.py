"""Changes and pairs of our own for `fidelity.py`: written before the rules were looked at, in everyday words.

Of a change the newest value must be in a summary and the stale one gone; of a pair both sentences must stay.
"""

from __future__ import annotations

# What was said, what was said later, the stale value (empty where the later words may name it), the newest value.
CHANGES: tuple[tuple[str, str, str, str], ...] = (
    (
        "The wedding cake should feed 80 guests.",
        "We got more replies, the cake has to feed 110 guests.",
        "80",
        "110",
    ),
    ("My flight lands at 18:40.", "The airline just wrote: landing is at 20:15 instead.", "18:40", "20:15"),
    (
        "The paint for the kitchen is sage green.",
        "We've changed our minds about the kitchen paint, it will be cream.",
        "sage",
        "cream",
    ),
    (
        "Dr. Mehta is my physiotherapist.",
        "My physiotherapist is Dr. Olsen these days, Dr. Mehta retired.",
        "",
        "Olsen",
    ),
    ("The rent is 1,150 pounds a month.", "The landlord put the rent up to 1,240 pounds.", "1,150", "1,240"),
    ("Our standup is at 9:15.", "Standup has been shifted to 10:00 for everyone.", "9:15", "10:00"),
    (
        "The API key lives in vault path kv/app/alpha.",
        "The API key is in kv/app/beta now.",
        "kv/app/alpha",
        "kv/app/beta",
    ),
    ("We're running Postgres 13.", "We upgraded to Postgres 16 last night.", "Postgres 13", "Postgres 16"),
    ("The essay must be 1500 words.", "The professor cut the essay to 1200 words.", "1500", "1200"),
    (
        "Ship the parcel to 14 Elm Street.",
        "I mistyped the address: ship the parcel to 41 Elm Street.",
        "14 Elm",
        "41 Elm",
    ),
    (
        "My daughter's school is Oakfield Primary.",
        "My daughter switched schools, she's at Riverside Academy.",
        "Oakfield",
        "Riverside",
    ),
    (
        "The train to Lyon leaves from platform 4.",
        "Platform change: the Lyon train leaves from platform 11.",
        "platform 4",
        "platform 11",
    ),
    (
        "The password policy needs 10 characters.",
        "Security wants 14 characters in the password policy.",
        "10 char",
        "14 char",
    ),
    ("The conference is in Vienna.", "The conference was relocated to Prague.", "Vienna", "Prague"),
    ("Use a batch size of 32.", "Let's try a batch size of 64.", "32", "64"),
    (
        "The contractor quoted 8,400 dollars for the roof.",
        "The contractor's new quote for the roof is 9,150 dollars.",
        "8,400",
        "9,150",
    ),
    ("I take 50 mg of sertraline.", "My doctor increased sertraline to 75 mg.", "50 mg", "75 mg"),
    ("The meeting room is B204.", "We've been given room C110 for the meeting.", "B204", "C110"),
    (
        "The launch is planned for March 3rd.",
        "The launch slips by two weeks, to March 17th.",
        "March 3rd",
        "March 17th",
    ),
    (
        "Please format answers as bullet lists.",
        "Stop with the bullet lists, write plain paragraphs.",
        "",
        "paragraphs",
    ),
    ("Our mascot is a penguin.", "The mascot will be an otter, marketing decided.", "penguin", "otter"),
    ("Tomás is leading the migration.", "Ingrid takes the lead on the migration from Tomás.", "", "Ingrid"),
    ("The lease ends on 30 June.", "The lease was extended until 30 September.", "30 June", "30 September"),
    (
        "My cat's vet appointment is on Thursday.",
        "The vet can only see the cat on Saturday.",
        "Thursday",
        "Saturday",
    ),
    ("The target accuracy is 92%.", "Management wants 95% accuracy.", "92%", "95%"),
    ("The monthly savings goal is $400.", "I can only save $250 a month after all.", "$400", "$250"),
    ("The container listens on port 8000.", "I changed the container's port to 8443.", "8000", "8443"),
    (
        "The file is at reports/q1.xlsx.",
        "The file was moved to archive/q1_final.xlsx.",
        "reports/q1.xlsx",
        "archive/q1_final.xlsx",
    ),
    (
        "My new phone number is 555-0142.",
        "Disregard the number from before; it's 555-0199.",
        "555-0142",
        "555-0199",
    ),
    (
        "The wifi network is called BlueHeron.",
        "We renamed the wifi network to GreyOwl.",
        "BlueHeron",
        "GreyOwl",
    ),
    ("婚礼定在5月20日。", "婚礼日期变了，改到6月8日。", "5月20", "6月8"),
    ("我每月房租是3200元。", "房东涨租了，房租现在3600元。", "3200", "3600"),
    ("接口地址是https://a.example/v1。", "接口地址换成https://b.example/v2了。", "a.example", "b.example"),
    ("这个项目由王芳负责。", "项目换李强负责了。", "王芳", "李强"),
    ("航班是早上8点起飞。", "航空公司通知航班延误，10点半起飞。", "8点", "10点半"),
    ("数据库用的是MySQL。", "我们把数据库换成了PostgreSQL。", "MySQL", "PostgreSQL"),
    ("论文要写5000字。", "老师说论文写8000字。", "5000", "8000"),
    ("我住在杭州。", "我上个月搬到成都了。", "杭州", "成都"),
    ("团建人数是20人。", "又有人报名，团建一共26人。", "20人", "26人"),
    ("会议室在三楼301。", "会议室改成五楼508。", "301", "508"),
    ("服务器超时设为30秒。", "超时时间请调到90秒。", "30秒", "90秒"),
    ("我儿子读二年级。", "儿子升三年级了。", "二年级", "三年级"),
    ("目标体重是65公斤。", "目标体重下调到62公斤。", "65公斤", "62公斤"),
    ("快递寄到解放路12号。", "地址写错了，快递寄到解放路21号。", "路12号", "路21号"),
    ("聚餐订在周六晚上。", "周六大家没空，聚餐挪到周日晚上。", "", "周日"),
    ("默认分支是main。", "默认分支以后用develop。", "main", "develop"),
    (
        "The deposit for the flat is 900 euros.",
        "The agent raised the deposit for the flat to 1,050 euros.",
        "900",
        "1,050",
    ),
    ("Karim is our on-site nurse.", "Our on-site nurse changed: it's Beatriz.", "", "Beatriz"),
    ("The museum opens at 10:00.", "From this month the museum opens at 11:00.", "10:00", "11:00"),
    ("My shoe size is 42.", "I measured again, my shoe size is 43.", "42", "43"),
    (
        "The translation is due on Friday.",
        "The client gave us until Monday for the translation.",
        "Friday",
        "Monday",
    ),
    (
        "The repo is github.com/acme/alpha.",
        "The repo was renamed to github.com/acme/omega.",
        "acme/alpha",
        "acme/omega",
    ),
    ("We want a table for six.", "Two more are joining, make it a table for eight.", "for six", "eight"),
    (
        "The train ticket costs 64 euros.",
        "Ticket prices went up, the train ticket costs 71 euros now.",
        "64",
        "71",
    ),
    ("Deploys happen on Tuesdays.", "Deploys were moved to Wednesdays.", "Tuesday", "Wednesday"),
    ("The model checkpoint is ckpt-1200.", "Use checkpoint ckpt-1850 instead.", "ckpt-1200", "ckpt-1850"),
    (
        "My thesis advisor is Prof. Lindgren.",
        "Prof. Achebe replaced Prof. Lindgren as my thesis advisor.",
        "",
        "Achebe",
    ),
    (
        "The sofa must be under 200 cm wide.",
        "I measured the wall: the sofa must be under 185 cm wide.",
        "200",
        "185",
    ),
    ("Retention is 30 days.", "Legal requires a retention of 90 days.", "30 days", "90 days"),
    ("Write the report in German.", "Actually, write the report in English.", "German", "English"),
    ("The party starts at 7pm.", "The party now starts at 8pm.", "7pm", "8pm"),
    ("Our supplier is Norvik.", "We switched suppliers to Halden.", "Norvik", "Halden"),
    ("I weigh 82 kg.", "I weigh 79 kg now.", "82", "79"),
    ("Use Python 3.10 for the build.", "The build was upgraded to Python 3.12.", "3.10", "3.12"),
    ("The gate code is 4471.", "They changed the gate code to 9036.", "4471", "9036"),
    ("The keynote is in Hall 2.", "The keynote was shifted to Hall 5.", "Hall 2", "Hall 5"),
    ("面试安排在周二上午。", "面试推迟到周四上午。", "周二", "周四"),
    ("门禁密码是4471。", "门禁密码换成9036了。", "4471", "9036"),
    ("每天跑步5公里。", "每天跑步改为8公里。", "5公里", "8公里"),
    ("报告用英文写。", "报告改用中文写。", "英文", "中文"),
    ("供应商是诺维克。", "供应商换成了哈尔登。", "诺维克", "哈尔登"),
    ("押金是2000元。", "押金涨到2500元了。", "2000", "2500"),
    ("博物馆十点开门。", "博物馆改成十一点开门。", "馆十点", "十一点"),
    ("高铁票要553元。", "高铁票涨价了，要580元。", "553", "580"),
    ("我的导师是林教授。", "导师换成陈教授了。", "林教授", "陈教授"),
    ("保留日志30天。", "日志保留时间延长到90天。", "30天", "90天"),
    (
        "The choir rehearses on Wednesdays.",
        "The choir swapped its rehearsal to Thursdays.",
        "Wednesday",
        "Thursday",
    ),
    ("My insurance number is KV-4410.", "I got a new insurance number: KV-7821.", "KV-4410", "KV-7821"),
    (
        "The bakery order is 40 rolls.",
        "Please increase the bakery order to 60 rolls.",
        "40 rolls",
        "60 rolls",
    ),
    ("We fly with Lufthansa.", "We rebooked, so we fly with KLM.", "Lufthansa", "KLM"),
    ("The exhibition closes on 12 May.", "The exhibition has been extended to 26 May.", "12 May", "26 May"),
    ("The cron job runs at 03:00.", "I rescheduled the cron job for 04:30.", "03:00", "04:30"),
    (
        "My desk is on the second floor.",
        "My desk was moved to the fifth floor.",
        "second floor",
        "fifth floor",
    ),
    ("The coupon gives 10% off.", "The coupon gives 15% off since yesterday.", "10%", "15%"),
    ("The novel should have 12 chapters.", "I'd rather have 15 chapters in the novel.", "12 chap", "15 chap"),
    (
        "Send invoices to billing@old.example.",
        "Invoices should go to accounts@new.example instead.",
        "billing@old",
        "accounts@new",
    ),
    ("The max file size is 5 MB.", "Bump the max file size to 20 MB.", "5 MB", "20 MB"),
    ("Elena signs the contracts.", "Contracts are signed by Marek from now on.", "Elena", "Marek"),
    ("会员费是每年300元。", "会员费上调到每年360元。", "300", "360"),
    ("出发时间是早上六点。", "出发时间改到早上七点。", "六点", "七点"),
    ("客户经理是赵敏。", "客户经理现在是孙丽。", "赵敏", "孙丽"),
    ("我们用的是阿里云。", "我们迁移到腾讯云了。", "阿里云", "腾讯云"),
    ("演出在第一剧场。", "演出换到第三剧场。", "第一", "第三"),
    ("每周上三次课。", "每周改上两次课。", "三次", "两次"),
)
PAIRS: tuple[tuple[str, str], ...] = (
    ("The guest bedroom is 12 square metres.", "The living room is 28 square metres."),
    ("My sister Clara lives in Turin.", "My brother Paolo lives in Genoa."),
    ("The morning pill is 5 mg.", "The evening pill is 10 mg."),
    ("The web server has 4 cores.", "The database server has 16 cores."),
    ("Lunch with Anna is on Monday.", "Dinner with Jonas is on Friday."),
    ("The French exam is on 4 May.", "The maths exam is on 9 May."),
    ("The red cable goes to pin 3.", "The black cable goes to pin 7."),
    ("Invoice A-17 is for 300 euros.", "Invoice A-18 is for 450 euros."),
    ("The login page uses React.", "The admin page uses Vue."),
    ("The budget for food is $600.", "The budget for music is $900."),
    ("The dev database is at db-dev:5432.", "The analytics database is at db-an:5433."),
    ("The first draft is due on 3 April.", "The final version is due on 20 April."),
    ("Never share the client's name.", "Never share the client's address."),
    ("My mother's birthday is 2 June.", "My father's birthday is 19 August."),
    ("The kitchen is blue.", "The hallway is yellow."),
    ("Set the upload limit to 20 MB.", "Set the download limit to 200 MB."),
    ("The Berlin office has 12 people.", "The Madrid office has 30 people."),
    ("北京办公室有12人。", "上海办公室有30人。"),
    ("爸爸的生日是3月5日。", "妈妈的生日是9月12日。"),
    ("语文考试在周一。", "数学考试在周三。"),
    ("机票花了1200元。", "酒店花了900元。"),
    ("登录接口超时5秒。", "上传接口超时60秒。"),
    ("主卧刷白色。", "客厅刷米色。"),
    ("周一和张伟开会。", "周四和刘洋开会。"),
    ("早上吃一片药。", "晚上吃两片药。"),
    ("Room 4 has 20 seats.", "Room 6 has 35 seats."),
    ("The adult ticket is 18 euros.", "The child ticket is 9 euros."),
    ("Walk the dog at 7:00.", "Feed the cat at 8:00."),
    ("Chapter 3 has 24 pages.", "Chapter 4 has 31 pages."),
    ("The north door code is 1188.", "The south door code is 2299."),
    ("My left knee hurts since March.", "My right shoulder hurts since May."),
    ("Peter pays 200 euros.", "Lucy pays 150 euros."),
    ("The train to Ghent leaves at 9:10.", "The train to Bruges leaves at 9:40."),
    ("Order 551 ships on Monday.", "Order 552 ships on Tuesday."),
    ("The oven runs at 180 degrees for the bread.", "The oven runs at 220 degrees for the pizza."),
    ("Table users has 12 columns.", "Table orders has 19 columns."),
    ("The summer course costs 400 euros.", "The winter course costs 350 euros."),
    ("I have a call with Sam at 2pm.", "I have a call with Rita at 4pm."),
    ("Version 1.2 fixed the login bug.", "Version 1.3 fixed the export bug."),
    ("3号楼有20户。", "5号楼有36户。"),
    ("成人票80元。", "儿童票40元。"),
    ("去广州的车9点开。", "去深圳的车10点开。"),
    ("左边抽屉放合同。", "右边抽屉放发票。"),
    ("小王出200元。", "小李出150元。"),
    ("第一章写了20页。", "第二章写了35页。"),
    ("The north pump uses 3 kW.", "The south pump uses 5 kW."),
    ("Task 11 takes 2 days.", "Task 12 takes 5 days."),
    ("My bike cost 700 euros.", "My helmet cost 80 euros."),
    ("The rent is due on the 1st.", "The internet bill is due on the 15th."),
    ("The Osaka team meets at 9:00.", "The Lagos team meets at 14:00."),
    ("Tea steeps for 3 minutes.", "Coffee brews for 4 minutes."),
    ("We sold 30 tickets in March.", "We sold 45 tickets in April."),
    ("Ben takes the 7:15 bus.", "Mia takes the 7:45 bus."),
    ("卧室12平方米。", "客厅25平方米。"),
    ("周三交作业。", "周五交报告。"),
    ("爷爷今年80岁。", "奶奶今年78岁。"),
    ("三月卖了30张票。", "四月卖了45张票。"),
)
MISSED = frozenset(
    {
        "My desk is on the second floor.",
        "Elena signs the contracts.",
        "我们用的是阿里云。",
        "The wedding cake should feed 80 guests.",
        "Our mascot is a penguin.",
        "The target accuracy is 92%.",
        "The translation is due on Friday.",
    }
)
"""First sentences of changes whose stale value stays beside the newest, as of now: nothing in the later words says that
it is a change, or the value is a word like any other."""


def told(before: str, after: str) -> str:
    """The summary of a conversation in which both were said, with small talk between."""
    from backstory.compaction.extract import extract
    from backstory.compaction.words import is_chinese
    from backstory.messages import assistant, user
    from backstory.tokens import count_text

    between = (
        ["好的，谢谢。", "今天下午一直下雨。"]
        if is_chinese(before)
        else ["Thanks, that helps.", "It rained all day."]
    )
    said = [before, *between, after]
    messages = [message for text in said for message in (user(text), assistant("ok"))]
    return extract(messages, tokens=600, count=count_text).text


def holds(change: tuple[str, str, str, str]) -> bool:
    """Whether the newest value is there, and the stale one is not."""
    before, after, stale, newest = change
    text = told(before, after)
    return newest in text and not (stale and stale in text)


def stays(pair: tuple[str, str]) -> bool:
    """Whether both sentences are there."""
    text = told(*pair)
    return all(sentence.rstrip(".。") in text for sentence in pair)
