-- stepwell: compatible from 6
-- Functions and views are replaced after this file.

-- It has another parameter, and says how long it walked.
drop function if exists stepwell.promote(integer);
