"""Sentences of twelve languages, in twelve writing systems or with abbreviations of their own."""

from __future__ import annotations

# a sentence a line; Universal Declaration of Human Rights, openings of novels, and a few made here
SENTENCES = {
    "ru": """
        Все люди рождаются свободными и равными в своём достоинстве и правах.
        Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему.
        Всё смешалось в доме Облонских.
        А. С. Пушкин родился в Москве в 1799 г. в дворянской семье.
        «Кто там?» — спросил он.
        Никто не ответил!
        Он жил на ул. Мойка, д. 12.
    """,
    "el": """
        Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.
        Πού πας;
        Πάω στο σπίτι μου.
        Ο κ. Παπαδόπουλος ήρθε χθες.
        Ωραία!
        Η Αθήνα είναι η πρωτεύουσα της Ελλάδας.
    """,
    "ar": """
        يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.
        هل قرأت الكتاب؟
        نعم، قرأته أمس.
        ذهب الولد إلى المدرسة.
        ما أجمل هذا اليوم!
        القاهرة عاصمة مصر.
    """,
    "zh": """
        人人生而自由,在尊严和权利上一律平等。
        你去哪里？
        我去学校！
        话说天下大势，分久必合，合久必分。
        他在1934年出生于北京。
        这本书很有意思。
    """,
    "ja": """
        吾輩は猫である。
        名前はまだ無い。
        どこで生れたかとんと見当がつかぬ。
        「もう帰る。」と彼は言った。
        本当ですか？
        国境の長いトンネルを抜けると雪国であった。
    """,
    "th": """
        มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน
        ฉันไปโรงเรียน
        เขาอยู่บ้าน
        กรุงเทพเป็นเมืองหลวงของประเทศไทย
    """,
    "pl": """
        Wszyscy ludzie rodzą się wolni i równi w swojej godności i prawach.
        Prof. Nowak mieszka przy ul. Długiej w Krakowie.
        Świeciło słońce.
        Czy widziałeś np. Wawel?
        Łódź jest dużym miastem!
        Urodził się 3. Maja.
    """,
    "cs": """
        Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv.
        Dr. Novák přišel 3. května.
        Šel domů, např. s Petrem.
        Říkal jsi něco?
        Žádný učený z nebe nespadl.
    """,
    "de": """
        Alle Menschen sind frei und gleich an Würde und Rechten geboren.
        Am 3. Oktober kam Dr. Müller z. B. nach Berlin.
        Er blieb bis ca. 5 Uhr.
        Überall war Ruhe.
        „Wer ist da?“ fragte er.
        Jemand musste Josef K. verleumdet haben.
    """,
    "fr": """
        Tous les êtres humains naissent libres et égaux en dignité et en droits.
        Longtemps, je me suis couché de bonne heure.
        M. Dupont est parti à 8 h du matin.
        Élise dort encore.
        « Viens ! » dit-il.
        Où vas-tu ?
    """,
    "hi": """
        सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।
        राम घर गया।
        सीता कहाँ है?
        डॉ. शर्मा कल आए।
        यह किताब बहुत अच्छी है!
    """,
    "en": """
        Dr. Smith met J. K. Rowling in St. Louis, Mo.
        He paid $3.50.
        “Why?” she said.
        “It is 5 p.m. now.”
        The U.S. Senate met on Jan. 5 at the home of Gen. R. E. Lee.
        He lives in the U.S.
        The end came...
        Or did it?
        No.
        Karl left.
        See No. 5 and Figs. 3 and 4.
        Mr. and Mrs. Bennet of Longbourn, Esq., came with Lt. Col. Fitzwilliam vs. Mr. X.
        It was 1934.
        Élise went home at 3.15.
        “I am no bird; and no net ensnares me.”
        (She was right.)
        Call me Ishmael.
        Some years ago -- never mind how long -- I thought I would sail about.
        “What is his name?”
        “Bingley.”
        “Is he married or single?”
        Apples, pears, etc. are fruit.
        He bought apples, pears, etc.
        They were good!
        Was it I?
        It was he!
        Berg & Co. Ltd. made 1,000,000 of them by 9 a.m.
        “Stop!” cried Mr. Darcy; “stop!”
        She stopped.
    """,
}


def lines(language: str) -> list[str]:
    return [line.strip() for line in SENTENCES[language].strip().splitlines()]
