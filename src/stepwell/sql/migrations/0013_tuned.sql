-- stepwell: compatible from 6
alter table stepwell.bulk add column chunk_size integer not null default 500 check (chunk_size between 1 and 500);
alter table stepwell.failure_tally add column queue text, add column lost integer not null default 0;
-- Its second parameter has another name.
drop function if exists stepwell.unique_text(text, text, text);
