"""Names of months and weekdays in 21 languages, and words for days seen from today, as people write
them in notes and questions.

Months and weekdays are those of Unicode CLDR (https://cldr.unicode.org, license Unicode-3.0), in
full and abbreviated, with and without accents, in lower case; `_` stands for a blank within a name.
Abbreviations that are common words are left out. Every word stands for one month, or one weekday.
"""

from __future__ import annotations

from typing import Final

MONTHS: Final = (
    """
        january jan januar jänner janner jän enero ene janvier janv gennaio janeiro januari tammikuuta tammi
        tammikuu stycznia styczeń styczen ledna led leden січня січ січень января янв январь ocak oca जनवरी जन॰
        জানুয়ারি জানু جنوری يناير كانون_الثاني ژانویه январе січні
    """,
    """
        february feb februar febrero février fevrier févr fevr febbraio fevereiro fev februari helmikuuta helmi
        helmikuu lutego lut luty února unora úno uno únor unor лютого лют лютий февраля февр февраль şubat subat
        şub sub फ़रवरी फ़र॰ ফেব্রুয়ারি ফেব فروری فبراير شباط فوریه феврале лютому फरवरी
    """,
    """
        march mar märz marz mär mrz marzo mars março marco maart mrt marts maaliskuuta maalis maaliskuu marca
        marzec března brezna bře bre březen brezen березня бер березень марта мар март mart maret मार्च মার্চ
        مارچ مارس آذار марте березні maerz
    """,
    """
        april apr abril abr avril avr aprile huhtikuuta huhti huhtikuu kwietnia kwi kwiecień kwiecien dubna dub
        duben квітня квіт квітень апреля апр апрель nisan nis अप्रैल এপ্রিল এপ্রি اپریل أبريل نيسان آوریل апреле
        квітні
    """,
    """
        may mai mayo maggio mag maio mei maj toukokuuta touko toukokuu maja května kvetna kvě kve květen kveten
        травня трав травень мая май mayıs mayis مئی مايو أيار мае травні
    """,
    """
        june jun juni junio juin giugno giu junho kesäkuuta kesakuuta kesä kesa kesäkuu kesakuu czerwca cze
        czerwiec června cervna čvn cvn červen cerven червня черв червень июня июн июнь haziran haz जून জুন جون
        يونيو حزيران ژوئن июне червні
    """,
    """
        july jul juli julio juillet juil luglio lug julho heinäkuuta heinakuuta heinä heina heinäkuu heinakuu
        lipca lip lipiec července cervence čvc cvc červenec cervenec липня лип липень июля июл июль temmuz tem
        जुलाई जुल॰ জুলাই জুল جولائی يوليو تموز ژوئیه июле липні
    """,
    """
        august aug agosto ago août aout augustus augusti elokuuta elokuu sierpnia sierpień sierpien srpna srp
        srpen серпня серп серпень августа авг август ağustos agustos ağu agu agustus अगस्त अग॰ আগস্ট اگست أغسطس
        آب اوت августе серпні
    """,
    """
        september sep sept septiembre setiembre septembre settembre setembro syyskuuta syys syyskuu września
        wrzesnia wrz wrzesień wrzesien září zari zář zar вересня вер вересень сентября сент сентябрь eylül eylul
        eyl सितंबर सित॰ সেপ্টেম্বর সেপ সেপ্ট ستمبر سبتمبر أيلول سپتامبر сентябре вересні सितम्बर
    """,
    """
        october oct oktober okt octubre octobre ottobre ott outubro out lokakuuta lokakuu października
        pazdziernika paź paz październik pazdziernik října rijna říj rij říjen rijen жовтня жовт жовтень октября
        окт октябрь ekim eki अक्टूबर अक्टू॰ অক্টোবর অক্টো اکتوبر أكتوبر تشرين_الأول اکتبر октябре жовтні अक्तूबर
    """,
    """
        november nov noviembre novembre novembro marraskuuta marras marraskuu listopada listopad listopadu
        листопада лист листопад ноября нояб ноябрь kasım kasim kas नवंबर नव॰ নভেম্বর নভে نومبر نوفمبر
        تشرين_الثاني نوامبر ноябре листопаді नवम्बर
    """,
    """
        december dec dezember dez diciembre dic décembre decembre déc dicembre dezembro desember joulukuuta
        joulu joulukuu grudnia gru grudzień grudzien prosince prosinec грудня груд грудень декабря дек декабрь
        aralık aralik ara दिसंबर दिस॰ ডিসেম্বর ডিসে دسمبر ديسمبر كانون_الأول دسامبر декабре грудні दिसम्बर
    """,
)
WEEKDAYS: Final = (
    """
        monday mon montag mo lunes lun lundi lunedì lunedi segunda-feira seg maandag måndag mandag maanantaina
        maanantai poniedziałek pondělí pondeli понеділок понедельник пн pazartesi senin सोमवार সোমবার پیر
        الاثنين دوشنبه segunda
    """,
    """
        tuesday tue dienstag di martes mar mardi martedì martedi terça-feira terca-feira ter dinsdag tisdag
        tirsdag tiistaina tiistai wtorek úterý utery вівторок вторник вт salı sali selasa मंगलवार মঙ্গলবার منگل
        الثلاثاء سه‌شنبه terça
    """,
    """
        wednesday wed mittwoch mi miércoles miercoles mié mercredi mer mercoledì mercoledi quarta-feira qua
        woensdag onsdag keskiviikkona keskiviikko środa sroda středa streda середа среда ср çarşamba carsamba
        rabu बुधवार বুধবার بدھ الأربعاء چهارشنبه quarta среду середу
    """,
    """
        thursday thu donnerstag do jueves jue jeudi jeu giovedì giovedi gio quinta-feira qui donderdag torsdag
        torstaina torstai czwartek čtvrtek ctvrtek четвер четверг чт perşembe persembe kamis गुरुवार বৃহস্পতিবার
        جمعرات الخميس پنجشنبه quinta
    """,
    """
        friday fri freitag fr viernes vie vendredi ven venerdì venerdi sexta-feira sex vrijdag fredag
        perjantaina perjantai piątek piatek pátek patek пʼятниця пятница пт cuma jumat शुक्रवार শুক্রবার جمعہ
        الجمعة جمعه sexta пятницу
    """,
    """
        saturday sat samstag sa sábado sabado sáb samedi sam sabato sab zaterdag lördag lordag lørdag lauantaina
        lauantai sobota субота суббота сб cumartesi sabtu शनिवार শনিবার ہفتہ السبت شنبه субботу суботу
    """,
    """
        sunday sun sonntag so domingo dom dimanche dim domenica zondag söndag sondag søndag sunnuntaina
        sunnuntai niedziela neděle nedele неділя воскресенье вс pazar minggu रविवार রবিবার اتوار الأحد یکشنبه
    """,
)

RELATIVE_DAYS: Final = (
    (
        0,
        """
        today this_morning this_afternoon this_evening tonight heute hoy aujourd'hui aujourd’hui oggi hoje vandaag
        idag i_dag tänään dzisiaj dziś dnes сьогодні
        сегодня bugün hari_ini आज আজ آج اليوم امروز 今天 今日 本日 きょう 오늘
        """,
    ),
    (
        -1,
        """
        yesterday last_night gestern ayer hier ieri ontem gisteren igår i_går eilen wczoraj včera вчора вчера
        dün kemarin कल গতকাল کل أمس امس البارحة دیروز 昨天 昨日 きのう 昨晚 昨夜 어제
        """,
    ),
    (
        -2,
        """
        the_day_before_yesterday day_before_yesterday vorgestern anteayer antes_de_ayer avant-hier
        l'altro_ieri l’altro_ieri anteontem eergisteren förrgår i_förrgår przedwczoraj předevčírem позавчора
        позавчера evvelsi_gün परसों পরশু پرسوں أول_أمس 前天 一昨日 おととい 그저께 그제 이틀_전
        """,
    ),
    (-3, "vorvorgestern 사흘_전 그끄저께 大前天 一昨々日 さきおととい"),
    (
        2,
        """
        the_day_after_tomorrow day_after_tomorrow übermorgen uebermorgen pasado_mañana après-demain dopodomani
        depois_de_amanhã overmorgen i_övermorgen i_overmorgen pojutrze pozítří послезавтра післязавтра öbür_gün بعد_غد
        后天 後天 明後日 あさって 모레
        """,
    ),
    (
        1,
        """
        tomorrow morgen demain domani amanhã imorgon i_morgon i_morgen huomenna jutro zítra завтра yarın besok
        আগামীকাল غدا غداً فردا 明天 明日 내일 mañana
        """,
    ),
)
"""Words for a day, by its distance from today. The Hindi and Urdu words for yesterday also mean
tomorrow; a memory is asked about the past.
"""

SPANS: Final = (
    (
        "week",
        -1,
        """
        letzte_woche letzter_woche letzten_woche vorige_woche voriger_woche vergangene_woche vergangenen_woche
        semana_pasada semaine_dernière semaine_derniere semaine_passée settimana_scorsa scorsa_settimana
        semana_passada vorige_week afgelopen_week förra_veckan sidste_uge forrige_uke zeszłym_tygodniu
        прошлой_неделе минулого_тижня geçen_hafta पिछले_सप्ताह पिछले_हफ्ते গত_সপ্তাহে پچھلے_ہفتے الأسبوع_الماضي
        上周 上週 上星期 上个星期 上個星期 先週 지난주 지난_주
        """,
    ),
    (
        "week",
        0,
        """
        diese_woche dieser_woche esta_semana cette_semaine questa_settimana deze_week den_här_veckan denne_uge
        tym_tygodniu этой_неделе цього_тижня bu_hafta इस_सप्ताह इस_हफ्ते এই_সপ্তাহে اس_ہفتے هذا_الأسبوع
        本周 本週 这周 這週 这个星期 這個星期 今週 이번_주 이번주
        """,
    ),
    (
        "month",
        -1,
        """
        letzten_monat letztem_monat vorigen_monat vergangenen_monat mes_pasado mois_dernier mois_passé
        mese_scorso scorso_mese mês_passado mes_passado vorige_maand afgelopen_maand förra_månaden sidste_måned
        forrige_måned zeszłym_miesiącu прошлом_месяце минулого_місяця geçen_ay पिछले_महीने গত_মাসে پچھلے_مہینے
        الشهر_الماضي 上个月 上個月 上月 先月 지난달 지난_달
        """,
    ),
    (
        "month",
        0,
        """
        diesen_monat diesem_monat este_mes ce_mois questo_mese este_mês deze_maand den_här_månaden denne_måned
        tym_miesiącu этом_месяце цього_місяця bu_ay इस_महीने এই_মাসে اس_مہینے هذا_الشهر 这个月 這個月 本月 今月
        이번_달 이번달
        """,
    ),
    (
        "year",
        -1,
        """
        letztes_jahr letzten_jahr letztem_jahr voriges_jahr vergangenes_jahr vergangenen_jahr año_pasado
        année_dernière annee_derniere l'an_dernier anno_scorso scorso_anno ano_passado vorig_jaar afgelopen_jaar
        förra_året i_fjol sidste_år i_fjor zeszłym_roku прошлом_году минулого_року geçen_yıl geçen_sene
        पिछले_साल গত_বছর پچھلے_سال العام_الماضي السنة_الماضية 去年 昨年 작년 지난해
        """,
    ),
    (
        "year",
        0,
        """
        dieses_jahr diesem_jahr este_año cette_année questo_anno este_ano dit_jaar tym_roku этом_году цього_року
        bu_yıl bu_sene इस_साल এই_বছর اس_سال هذا_العام هذه_السنة 今年 올해
        """,
    ),
    (
        "week",
        -2,
        """
        week_before_last vorletzte_woche vorletzter_woche vorletzten_woche avant-dernière_semaine semana_antepasada
        semana_retrasada eervorige_week позапрошлой_неделе позаминулого_тижня الأسبوع_قبل_الماضي 上上周 上上週
        上上星期 上上个星期 上上個星期 先々週 先先週 지지난주 지지난_주
        """,
    ),
    (
        "month",
        -2,
        """
        month_before_last vorletzten_monat vorletztem_monat avant-dernier_mois mes_antepasado mês_retrasado
        eervorige_maand позапрошлом_месяце позаминулого_місяця الشهر_قبل_الماضي 上上个月 上上個月 上上月 先々月 先先月
        지지난달 지지난_달
        """,
    ),
    (
        "year",
        -2,
        """
        year_before_last vorletztes_jahr vorletzten_jahr vorletztem_jahr avant-dernière_année año_antepasado
        ano_retrasado eervorig_jaar позапрошлом_году позаминулого_року العام_قبل_الماضي 一昨年 おととし 재작년
        """,
    ),
    (
        "week",
        1,
        """
        next_week nächste_woche nächster_woche nächsten_woche kommende_woche kommender_woche kommenden_woche
        próxima_semana semana_que_viene semaine_prochaine prossima_settimana settimana_prossima semana_que_vem
        volgende_week komende_week nästa_vecka næste_uge neste_uke przyszłym_tygodniu следующей_неделе
        наступного_тижня gelecek_hafta önümüzdeki_hafta अगले_सप्ताह अगले_हफ्ते আগামী_সপ্তাহে اگلے_ہفتے
        الأسبوع_القادم الأسبوع_المقبل 下周 下週 下星期 下个星期 下個星期 来週 다음_주 다음주
        """,
    ),
    (
        "month",
        1,
        """
        next_month nächsten_monat nächstem_monat kommenden_monat próximo_mes mes_que_viene mois_prochain
        prossimo_mese mese_prossimo próximo_mês mês_que_vem volgende_maand komende_maand nästa_månad næste_måned
        neste_måned przyszłym_miesiącu следующем_месяце наступного_місяця gelecek_ay önümüzdeki_ay अगले_महीने
        আগামী_মাসে اگلے_مہینے الشهر_القادم الشهر_المقبل 下个月 下個月 来月 다음_달 다음달
        """,
    ),
    (
        "year",
        1,
        """
        next_year nächstes_jahr nächsten_jahr nächstem_jahr kommendes_jahr próximo_año año_que_viene année_prochaine
        l'an_prochain prossimo_anno anno_prossimo próximo_ano ano_que_vem volgend_jaar nästa_år næste_år neste_år
        przyszłym_roku следующем_году наступного_року gelecek_yıl अगले_साल আগামী_বছর اگلے_سال العام_القادم
        السنة_القادمة 明年 来年 내년
        """,
    ),
)
"""Calendar weeks, months and years: this one (0), those before it (-1, -2), or the next (1)."""

SEASONS: Final = (
    """
        spring springtime frühling frühjahr fruehling fruehjahr primavera printemps lente voorjaar vår forår wiosna
        wiosną wiosnę весна весной весну весні навесні ilkbahar bahar الربيع ربيع 春天 春 봄
    """,
    """
        summer summertime sommer verano été estate verão zomer sommar sommeren lato latem лето летом літо влітку
        літом yaz الصيف صيف 夏天 夏 여름
    """,
    """
        autumn fall herbst otoño automne autunno outono herfst höst efterår høst jesień jesienią осень осенью осінь
        восени sonbahar güz الخريف خريف 秋天 秋 가을
    """,
    """
        winter wintertime invierno hiver inverno vinter zima zimą zimę зима зимой зиму взимку kış الشتاء شتاء 冬天 冬 겨울
    """,
)
"""Names of the seasons. They are those of the northern half of the earth: spring begins in March."""

UNITS: Final = (
    (
        "hour",
        """
        stunde stunden hora horas heure heures ora ore uur uren timme timmar time timer godzinę godzina godziny
        godzin час часа часов годину години годин saat घंटे ঘণ্টা گھنٹے ساعة ساعات 小时 小時 時間 시간
        """,
    ),
    (
        "day",
        """
        tag tage tagen día días dia dias jour jours giorno giorni dag dagen dagar dage dager dzień dni день дня
        дней дні днів gün दिन দিন دن يوم أيام 天 日 日 일
        """,
    ),
    (
        "week",
        """
        woche wochen semana semanas semaine semaines settimana settimane week weken vecka veckor uge uger uke
        uker tydzień tygodnie tygodni неделю недели недель тиждень тижні тижнів hafta सप्ताह हफ्ते সপ্তাহ ہفتے
        أسبوع أسابيع 周 週 星期 个星期 個星期 週間 주 주일
        """,
    ),
    (
        "month",
        """
        monat monate monaten mes meses mois mese mesi mês maand maanden månad månader måned måneder miesiąc
        miesiące miesięcy месяц месяца месяцев місяць місяці місяців ay महीने মাস مہینے شهر أشهر شهور 个月 個月
        か月 ヶ月 カ月 개월 달
        """,
    ),
    (
        "year",
        """
        jahr jahre jahren año años an ans année années anno anni ano anos jaar år rok lata lat год года лет рік роки
        років yıl sene साल বছর سال سنة سنوات عام أعوام 年 년
        """,
    ),
)
"""Units of a distance in time, of languages other than English."""

COUNTS: Final = (
    (
        1,
        """
        ein eine einem einer einen un une una um uma een én en ett et jeden jedną один одну bir एक এক ایک 一 한 일
        """,
    ),
    (2, "zwei deux dos due dois duas twee två tva to dwa dwie два две дві iki दो দুই دو 二 两 兩 두"),
    (3, "drei trois tres tre três drie trzy три üç तीन তিন تین ثلاثة ثلاث 三 세"),
    (4, "vier quatre cuatro quattro quatro fyra fire cztery четыре чотири dört चार চার چار أربعة أربع 四 네"),
    (5, "fünf fuenf cinq cinco cinque vijf fem pięć пять пʼять beş पाँच पांच পাঁচ پانچ خمسة خمس 五"),
    (6, "sechs six seis sei zes sex seks sześć шесть шість altı छह ছয় چھ ستة ست 六"),
    (7, "sieben sept siete sette sete zeven sju syv siedem семь сім yedi सात সাত سات سبعة سبع 七"),
    (8, "acht huit ocho otto oito åtta otte åtte osiem восемь вісім sekiz ثمانية ثماني 八"),
    (9, "neun neuf nueve nove negen nio ni dziewięć девять дев'ять dokuz تسعة تسع 九"),
    (10, "zehn dix diez dieci dez tien tio ti dziesięć десять on عشرة عشر 十"),
    (14, "vierzehn quatorze catorce quattordici catorze veertien fjorton fjorten"),
    (15, "quinze quince quindici"),
)
"""Words for the numbers before a unit of time, in languages other than English."""

TWO: Final = (("day", "يومين"), ("week", "أسبوعين"), ("month", "شهرين"), ("year", "سنتين عامين"), ("hour", "ساعتين"))
"""Words that mean two of a unit of time."""

IN_MONTH: Final = """
    in im en em nel nell' w v i au в у во في dans seit desde since depuis dal
"""
"""Words before a month without a year, such as "im März"."""

ANY_DAY_WORDS: Final = """
    between zwischen entre tra fra tussen mellan между
    was haben hatten wir ich du ihr man habe hast hat gemacht getan passiert geschah geschehen los war ist es
    gearbeitet woran an der die das am notiert aufgeschrieben gab
    qué que hicimos hice hizo pasó paso ha pasado ocurrió hemos hecho trabajamos el la los en lo
    qu'est-ce qu'avons-nous qu'ai-je avons-nous nous avons on a fait s'est passé s'est-il s’est il quoi quelle
    quelles ce qui est arrivé le les au
    cosa che abbiamo ho fatto è successo accaduto di il
    o quê fizemos fiz fez aconteceu foi houve no na em
    wat hebben we ik gedaan gebeurd gebeurde er is deden
    что мы я делали делал делала сделали сделал было произошло случилось в во на
    що ми робили зробили сталося було
    co zrobiliśmy robiliśmy robiłem się stało było
    vad gjorde vi jag hände
    ne yaptık oldu
    हमने मैंने क्या किया हुआ था को में की के
    আমরা কী করেছি করেছিলাম হয়েছে
    ہم نے کیا ہوا تھا کو
    ماذا ما فعلنا عملنا حدث حصل الذي في يوم
    우리 우리는 우리가 나는 내가 무엇을 무엇 뭐 뭘 했나요 했어 했지 했습니까 했는지 있었나요 일이 무슨
"""
"""Words of questions that ask for a day and nothing besides, in languages other than English."""

ANY_DAY_PARTS: Final = """
    我们 我們 我 你们 做了 干了 幹了 什么 什麼 甚么 哪些 事情 事 发生 發生 了 有 是 的 在 都 做 吗 嗎 呢
    何を 何が 何 した しました しましたか やった やりました ありました あった あり ました 起きた 起こった 起き か の に は を が
    私たち 私 僕 たち こと
    에 는 은 을 를 이 가 의
"""
"""Parts of such questions in languages without blanks."""
