"""How the texts of `demo_records.py` state a fact.

Phrases are written in one string, a bar between them. `{v}` is the value as the text writes it. One that begins with a
comma stands between commas after its subject; one that begins with a capital or the value is a sentence of its own;
any other follows a subject.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """The names of the fields that ask for one fact, and the phrases that state it.

    Attributes:
        names: with blanks between them; one that is written twice is drawn twice as often.
        does: what follows a subject.
        tag: what stands between commas.
        says: whole sentences.
        bare: whether the value alone says what it is.
    """

    names: str
    does: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    bare: bool = False


def sorted_phrases(names: str, said: str, *, bare: bool = False) -> Topic:
    """Sort phrases by how they begin."""
    phrases = said.split("|")
    tag = tuple(phrase[2:] for phrase in phrases if phrase.startswith(", "))
    says = tuple(phrase for phrase in phrases if phrase[0].isupper() or phrase[0] == "{")
    does = tuple(phrase for phrase in phrases if phrase[0] != "," and phrase not in says)
    return Topic(names, does, tag, says, bare)


NAME = Topic(
    "name name name name full_name person customer client guest contact customer_name client_name guest_name "
    "contact_name person_name user_name user who",
    bare=True,
)
NAMED = (
    "This is {v}", "It is about {v}", "Please contact {v}", "{v} wrote to us", "Meet {v}", "We spoke with {v} today",
    "The name is {v}", "{v} called this morning", "We have a new customer, {v}", "Message from {v}", "Ask for {v}",
    "A note about {v}", "The person is called {v}", "Booked by {v}", "Ordered by {v}", "{v} signed up",
)  # fmt: skip
SELF = ("My name is {v}", "I am {v}", "I'm {v}", "This is {v}", "{v} here", "Hello, I am {v}")
SOMEONE = ("The customer", "The guest", "The client", "The person", "She", "He", "I")
ROLES = (
    "customer client guest patient employee tenant student driver buyer owner applicant member author passenger "
    "subscriber visitor speaker player participant teacher manager"
).split()

EMAIL = sorted_phrases(
    "email email email email e_mail mail email_address mail_address contact_email work_email customer_email",
    "is reachable at {v}|can be reached at {v}|uses {v}|has the address {v}|writes from {v}|has the email {v}|"
    "answers at {v}|, reachable at {v}|, email {v}|, mail {v}|, e-mail: {v}|, {v}|, contact {v}|Write to {v}|"
    "Mail: {v}|Email: {v}|Contact: {v}|The email is {v}|My email is {v}|Her email is {v}|His email is {v}|"
    "You can reach me at {v}|Email me at {v}|Please reply to {v}|The e-mail address is {v}|Email address: {v}|"
    "Send an email to {v}|Please write to {v}",
    bare=True,
)
PHONE = sorted_phrases(
    "phone phone phone phone telephone tel mobile phone_number phone_number telephone_number contact_number "
    "mobile_number cell",
    "is reachable on {v}|has the phone number {v}|can be called on {v}|answers the phone at {v}|has the number {v}|"
    "can be reached on {v}|, phone {v}|, tel. {v}|, mobile {v}|, {v}|, phone: {v}|Call {v}|Phone: {v}|Tel: {v}|"
    "The number is {v}|My phone number is {v}|My number is {v}|Please call {v}|Her phone number is {v}|"
    "His phone number is {v}|You can call me at {v}|Call back on {v}|Phone number: {v}|The phone number is {v}|"
    "Reach me on {v}|Mobile: {v}",
    bare=True,
)
AGE = sorted_phrases(
    "age age age age age years years_old age_in_years age_years",
    "is {v}|is {v} years old|is {v} years old|is aged {v}|is now {v}|is {v} years of age|turned {v}|just turned {v}|"
    "turned {v} last week|, {v}|, {v}|, aged {v}|, age {v}|, {v} years old|, age: {v}|Age: {v}|The age is {v}|"
    "Her age is {v}|His age is {v}|My age is {v}",
    bare=True,
)
CITY = sorted_phrases(
    "city city city city town place location home_town hometown residence home_city city_name",
    "is from {v}|lives in {v}|lives in {v}|is based in {v}|comes from {v}|moved to {v}|resides in {v}|"
    "has a flat in {v}|"
    "works in {v}|, from {v}|, from {v}|, in {v}|, {v}|, based in {v}|, living in {v}|City: {v}|The city is {v}|"
    "We meet in {v}|The place is {v}|Home is {v}|Location: {v}|It takes place in {v}|The town is {v}|"
    "The office is in {v}",
    bare=True,
)

DATES = {
    "birth": sorted_phrases(
        "birthday birth_date birth_date date_of_birth date_of_birth born birthdate dob",
        "was born on {v}|was born on {v}|, born on {v}|, born {v}|, date of birth {v}|The date of birth is {v}|"
        "Date of birth: {v}|Birthday: {v}|Her birthday is {v}|My birthday is {v}",
    ),
    "event": sorted_phrases(
        "date date date date day event_date meeting_date appointment appointment_date when visit_date",
        "comes on {v}|has an appointment on {v}|will visit us on {v}|, on {v}|, {v}|The date is {v}|We meet on {v}|"
        "The meeting is on {v}|It takes place on {v}|Date: {v}|The appointment is on {v}|The party is on {v}|"
        "See you on {v}|It is planned for {v}|The event is on {v}|It happened on {v}",
        bare=True,
    ),
    "start": sorted_phrases(
        "check_in check_in arrival arrival_date start start_date start_date from_date begin checkin_date check_in_date",
        "arrives on {v}|checks in on {v}|starts on {v}|begins on {v}|moves in on {v}|, arriving {v}|, arriving on {v}|"
        ", starting {v}|, from {v}|It starts on {v}|Arrival is {v}|Check-in is on {v}|Arrival: {v}|Start date: {v}|"
        "The first day is {v}|Check-in: {v}",
    ),
    "end": sorted_phrases(
        "check_out check_out departure departure_date end end_date end_date until return_date checkout_date last_day",
        "leaves on {v}|checks out on {v}|stays until {v}|departs on {v}|returns on {v}|, until {v}|, leaving on {v}|"
        ", departing {v}|It ends on {v}|Departure is {v}|Check-out is on {v}|Departure: {v}|The last day is {v}|"
        "End date: {v}|Check-out: {v}",
    ),
    "due": sorted_phrases(
        "due due_date due_date deadline deadline pay_by expires valid_until expiry_date",
        "has to pay by {v}|must answer by {v}|has time until {v}|, due {v}|, due on {v}|, deadline {v}|"
        "It is due on {v}|The deadline is {v}|Please pay by {v}|Payment is due on {v}|It expires on {v}|Due date: {v}|"
        "The offer is valid until {v}|Deadline: {v}",
    ),
    "order": sorted_phrases(
        "order_date order_date ordered_on purchase_date invoice_date issue_date signup_date joined joined_on "
        "member_since",
        "ordered on {v}|signed up on {v}|joined on {v}|placed an order on {v}|bought it on {v}|, ordered on {v}|"
        ", dated {v}|, member since {v}|Ordered on {v}|Order date: {v}|It was ordered on {v}|"
        "The invoice is dated {v}|The order was placed on {v}",
    ),
    "delivery": sorted_phrases(
        "delivery delivery_date delivery_date ship_date shipped_on shipping_date delivered_on pickup_date",
        "gets the parcel on {v}|wants it delivered on {v}|picks it up on {v}|expects delivery on {v}|"
        ", to be delivered on {v}|, delivery on {v}|Delivery is on {v}|It ships on {v}|Please deliver on {v}|"
        "Delivery date: {v}|It will be delivered on {v}|Delivery: {v}",
    ),
}  # fmt: skip

AMOUNT = sorted_phrases(
    "amount amount amount price price total total cost sum fee bill total_price total_amount amount_due total_cost "
    "order_total invoice_total",
    "owes {v}|has to pay {v}|was charged {v}|will pay {v}|spends {v}|has a bill of {v}|, total {v}|, {v}|, price {v}|"
    ", for {v}|The total is {v}|It costs {v}|The price is {v}|Total: {v}|Amount due: {v}|The bill comes to {v}|"
    "The fee is {v}|That makes {v}|The amount is {v}|The order comes to {v}|Price: {v}|The cost is {v}|"
    "It came to {v} in total|Amount: {v}",
    bare=True,
)
SECOND_AMOUNTS = tuple(
    sorted_phrases(names, said.replace("{n}", names.split()[0]))
    for names in (
        "deposit deposit deposit_amount", "tip tip tip_amount", "tax tax tax_amount", "discount discount",
        "salary salary monthly_salary", "rent rent monthly_rent", "refund refund refund_amount", "balance balance",
    )
    for said in (", {n} {v}|, plus {v} {n}|The {n} is {v}|{v} of it is {n}|The {n} comes to {v}",)
)  # fmt: skip

YES_NO = (
    # field names; phrases of yes; phrases of no
    ("paid paid is_paid has_paid settled payment_received",
     "has paid|has already paid|It has been paid|Paid in full|The money has arrived|This is already settled|"
     "The bill is paid|Already paid|It is paid|Paid: yes",
     "has not paid|has not paid yet|It is still open|Not paid yet|Payment is outstanding|It is unpaid|"
     "We have not settled it|The bill is not paid|Paid: no"),
    ("remote remote works_remotely is_remote home_office",
     "works from home|works remotely|is fully remote|works in a home office|It is a remote job|Remote: yes",
     "comes to the office|works on site|is in the office every day|works in the office|does not work remotely|"
     "Remote: no"),
    ("vegetarian vegetarian is_vegetarian", "is vegetarian|is a vegetarian|eats no meat|does not eat meat|, vegetarian",
     "is not vegetarian|eats meat|is no vegetarian|loves meat|, not vegetarian"),
    ("vegan is_vegan", "is vegan|is a vegan|eats vegan food|, vegan", "is not vegan|is no vegan|, not vegan"),
    ("member member is_member membership",
     "is a member|is already a member|has a membership|is a club member|, a member",
     "is not a member|is no member|has no membership|is not a member yet|, not a member"),
    ("breakfast breakfast with_breakfast breakfast_included",
     "wants breakfast|, with breakfast|, breakfast included|Breakfast is included|Breakfast: yes",
     "wants no breakfast|, without breakfast|, no breakfast|Breakfast is not included|Breakfast: no"),
    ("urgent urgent is_urgent", "It is urgent|This is urgent|Please hurry|needs it urgently|It cannot wait|Urgent: yes",
     "It is not urgent|There is no hurry|No rush|can wait|It can wait|Urgent: no"),
    ("married married is_married", "is married|, married|got married|has a spouse|Married: yes",
     "is not married|is single|, unmarried|, not married|Married: no"),
    ("smoker smoker smokes is_smoker", "smokes|is a smoker|, a smoker|Smoker: yes",
     "does not smoke|is a non-smoker|, a non-smoker|never smokes|is not a smoker|Smoker: no"),
    ("parking parking needs_parking with_parking",
     "needs parking|needs a parking space|, with parking|Parking is included",
     "needs no parking|, without parking|does not need parking|There is no parking"),
    ("pets has_pets pets_allowed pets", "has pets|has a dog|, with pets|brings a dog|Pets are allowed",
     "has no pets|, without pets|Pets are not allowed|does not have a pet|brings no pets"),
    ("newsletter newsletter wants_newsletter subscribed",
     "wants the newsletter|subscribed to the newsletter|Please send the newsletter|Newsletter: yes",
     "does not want the newsletter|wants no newsletter|Please send no newsletter|Newsletter: no"),
    ("available available is_available in_stock", "is available|It is available|It is in stock|Available: yes",
     "is not available|It is not available|It is out of stock|It is sold out|Available: no"),
    ("insured insured is_insured has_insurance insurance", "is insured|has insurance|, insured|Insured: yes",
     "is not insured|has no insurance|, uninsured|, not insured|Insured: no"),
    ("shipped shipped is_shipped delivered", "It has been shipped|It was sent|It has been delivered|Shipped: yes",
     "It has not been shipped|It was not sent|It has not been delivered|Shipped: no"),
    ("active active is_active enabled", "is active|The account is active|is still active|It is enabled|Active: yes",
     "is not active|The account is closed|is inactive|is no longer active|It is disabled|Active: no"),
    ("new_customer new_customer is_new first_visit",
     "is a new customer|is here for the first time|It is the first visit|, a new customer|is new here",
     "is not new here|has been here before|is a regular customer|It is not the first visit|, a regular customer"),
    ("gift gift is_gift gift_wrap", "It is a gift|Please wrap it as a gift|This is a present|wants it gift wrapped",
     "It is not a gift|wants no gift wrap|No gift wrapping please|This is not a present"),
    ("license license has_license drives can_drive",
     "has a driving license|can drive|has a driver's license|drives a car",
     "has no driving license|cannot drive|has no driver's license|does not drive"),
    ("student student is_student", "is a student|studies|, a student|Student: yes",
     "is not a student|does not study|is no student|, not a student|Student: no"),
    ("online online is_online", "It is online|It takes place online|meets us online|Online: yes",
     "It is in person|It is not online|meets us in person|Online: no"),
    ("approved approved is_approved", "It is approved|was approved|It has been approved|Approved: yes",
     "It is not approved|was rejected|was not approved|It has not been approved|Approved: no"),
    ("allergies has_allergies allergies allergic", "has allergies|is allergic|There are allergies|Allergies: yes",
     "has no allergies|is not allergic|There are no allergies|Allergies: no"),
    ("signed signed is_signed", "has signed|It is signed|The contract is signed|Signed: yes",
     "has not signed|It is not signed|The contract is not signed yet|Signed: no"),
    ("attending attending will_attend coming", "will come|is coming|will attend|Attending: yes",
     "will not come|is not coming|will not attend|cannot come|Attending: no"),
    ("confirmed confirmed is_confirmed", "has confirmed|It is confirmed|It has been confirmed|Confirmed: yes",
     "has not confirmed|It is not confirmed|It has not been confirmed|Confirmed: no"),
    ("verified verified is_verified", "is verified|has been verified|, verified|Verified: yes",
     "is not verified|has not been verified|, unverified|Verified: no"),
    ("refundable refundable is_refundable", "It is refundable|The ticket is refundable|Refundable: yes",
     "It is not refundable|It is non-refundable|Refundable: no"),
)  # fmt: skip

CHOICES = (
    # field names; options; phrases
    ("colour color color color colour", "red|blue|green|black|white|yellow|grey|brown|purple|orange|pink|silver",
     ", in {v}|wants it in {v}|prefers {v}|likes the {v} one|chose {v}|The color is {v}|The colour is {v}|Color: {v}|"
     "Colour: {v}|It is {v}|ordered a {v} shirt|drives a {v} car"),
    ("size size size shirt_size", "small|medium|large|extra large|XS|S|M|L|XL",
     ", size {v}|The size is {v}|wears {v}|Size: {v}|needs size {v}|, in size {v}|wears size {v}"),
    ("status status status state order_status", "open|closed|pending|cancelled|done|blocked|waiting|draft|in progress",
     "The status is {v}|Status: {v}|It is {v}|The order is {v}|The ticket is {v}|It is still {v}|, status {v}"),
    ("priority priority priority urgency severity", "low|medium|high|critical|normal|minor|major",
     "The priority is {v}|Priority: {v}|, {v} priority|, with {v} priority|has {v} priority|It is of {v} priority"),
    ("department department team division", "sales|marketing|support|finance|engineering|legal|logistics|research|"
     "design|security|human resources|accounting",
     "works in {v}|, from {v}|The department is {v}|Department: {v}|joined the {v} department|is in the {v} team|"
     "leads {v}|, {v} department"),
    ("payment_method payment_method payment method paid_by", "cash|card|transfer|invoice|paypal|credit card|"
     "bank transfer|voucher",
     "pays by {v}|, paid by {v}|Payment: {v}|Payment by {v}|pays with {v}|The payment method is {v}|Payment is by {v}"),
    ("room room_type room room_kind", "single|double|suite|twin|family|studio",
     ", in a {v} room|books a {v} room|wants a {v} room|, a {v} room|Room: {v}|A {v} room please|Room type: {v}"),
    ("transport transport vehicle travels_by", "train|bus|car|plane|bike|ship|taxi|ferry",
     "comes by {v}|travels by {v}|, by {v}|Transport: {v}|takes the {v}|goes by {v}|arrives by {v}"),
    ("weekday weekday day_of_week", "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
     ", on {v}|, every {v}|comes on {v}|It is on a {v}|We meet on {v}|works on {v}|The weekday is {v}"),
    ("meal meal menu food", "fish|chicken|pasta|salad|soup|beef|rice|pizza",
     "wants {v}|takes the {v}|Meal: {v}|eats {v}|prefers {v}|chose the {v}|The meal is {v}"),
    ("language language language preferred_language", "English|German|French|Spanish|Italian|Dutch|Polish|Turkish|"
     "Arabic|Chinese|Japanese|Portuguese",
     "speaks {v}|The language is {v}|prefers {v}|Language: {v}|wants an answer in {v}|, speaking {v}"),
    ("plan plan tier subscription package", "free|basic|standard|premium|pro|gold|enterprise|starter|trial",
     "has the {v} plan|, on the {v} plan|Plan: {v}|chose the {v} plan|wants the {v} plan|The plan is {v}"),
    ("season season", "spring|summer|autumn|winter", ", in {v}|, next {v}|The season is {v}|comes in {v}|Season: {v}"),
    ("shift shift time_of_day slot", "morning|afternoon|evening|night|noon",
     "works in the {v}|, in the {v}|, {v} shift|has the {v} shift|prefers the {v}|Shift: {v}"),
    ("drink drink beverage", "tea|coffee|water|juice|beer|wine|milk|cola",
     "drinks {v}|, with {v}|wants {v}|To drink: {v}|takes {v}|Drink: {v}"),
    ("sentiment sentiment mood feedback", "positive|negative|neutral|happy|angry|sad|mixed",
     "The feedback is {v}|It was {v}|sounds {v}|left a {v} review|Feedback: {v}|The mood was {v}|is {v}"),
    ("category category category type kind topic subject", "billing|shipping|technical|account|complaint|question|"
     "sport|music|food|travel|health|books",
     "It is about {v}|Category: {v}|The topic is {v}|has a {v} question|writes about {v}|The subject is {v}|Type: {v}"),
    ("material material", "wood|steel|glass|cotton|leather|wool|plastic|stone|silk",
     ", made of {v}|It is made of {v}|Material: {v}|wants it in {v}|The material is {v}"),
    ("gender gender sex", "male|female|diverse", "is {v}|, {v}|Gender: {v}|The gender is {v}"),
    ("pet pet animal", "dog|cat|horse|bird|rabbit|hamster|parrot",
     "has a {v}|, with a {v}|The {v} is ill|brings the {v}|owns a {v}|Animal: {v}|Pet: {v}"),
    ("sport sport hobby activity", "tennis|football|golf|chess|yoga|swimming|running|dancing|skiing",
     "plays {v}|likes {v}|signed up for {v}|Sport: {v}|enjoys {v}|joins the {v} class|Hobby: {v}"),
    ("condition condition quality", "good|poor|broken|fair|excellent|damaged|used",
     ", in {v} condition|It is in {v} condition|Condition: {v}|The condition is {v}|The quality is {v}"),
    ("decision decision result outcome", "accept|reject|approve|deny|pass|fail|win|loss|draw",
     "The decision is {v}|Result: {v}|The outcome was {v}|The result is {v}|Decision: {v}"),
    ("delivery_method shipping shipping_method delivery_method", "express|standard|pickup|courier|overnight|economy",
     "Shipping: {v}|, with {v} delivery|wants {v} shipping|, {v} delivery|chose {v} delivery|Delivery method: {v}"),
    ("seat seat seat_type", "window|aisle|economy|business|first|middle",
     ", a {v} seat|wants a {v} seat|Seat: {v}|has a {v} seat|The seat is {v}"),
)  # fmt: skip

NAME_LIST_NOUNS = (
    "guests attendees team children participants members players speakers authors friends witnesses students "
    "passengers kids colleagues employees staff"
).split()
NAME_LIST = (
    ", with {v}|comes with {v}|{v} will join|The {nouns} are {v}|{v} are the {nouns}|brings {v}|, together with {v}|"
    "{v} are coming|works with {v}|has invited {v}|travels with {v}|We expect {v}|Please add {v}|Invited: {v}|"
    "{v} will be there|The {nouns} are called {v}|Also present: {v}|, accompanied by {v}|has these {nouns}: {v}"
)
NAME_LIST_ONE = (
    ", with {v}|comes with {v}|{v} will join|brings {v}|, together with {v}|{v} is coming|has invited {v}|"
    "The only {noun} is {v}|travels with {v}|Please add {v}|Invited: {v}|{v} will be there|Also present: {v}"
)
NAME_LIST_NONE = ", without {nouns}|There are no {nouns}|has no {nouns}|comes alone|Nobody else comes"

TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()

# Fields that a text says nothing about.
UNSTATED: tuple[tuple[Topic, type], ...] = ((EMAIL, str), (PHONE, str), (AGE, int), (CITY, str), (AMOUNT, float))

# More names for the fields of the three kinds.
KIND_FIELDS = {
    "seller": "company company vendor supplier", "number": "invoice_number invoice_number id reference code",
    "date": "invoice_date issue_date date", "total": "amount price total_amount amount_due",
    "currency": "currency_code",
    "paid": "is_paid settled has_paid", "guest": "name guest_name full_name customer",
    "name": "full_name person employee",
    "city": "town location place", "check_in": "arrival date start_date arrival_date",
    "nights": "number_of_nights duration", "people": "guests_count number_of_people persons party_size",
    "room": "room_type", "breakfast": "with_breakfast breakfast_included", "email": "mail email_address contact_email",
    "age": "years age", "job": "profession occupation position", "since": "since_year year joined_year",
    "remote": "is_remote works_remotely home_office",
}  # fmt: skip
